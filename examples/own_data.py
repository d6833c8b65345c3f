"""Data of your own: clients that you have already, and one set that coterie divides.

python examples/own_data.py
"""

from __future__ import annotations

import numpy as np

import coterie as ct


def readings(turned: bool, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two sensors; in half of the places they are mounted the other way round."""
    x = rng.normal(size=(n, 2)).astype(np.float32)
    y = (x[:, 0] > x[:, 1]).astype(np.int64)
    return (x[:, ::-1].copy() if turned else x), y


def places() -> ct.Population:
    """Twelve clients, each with training and test samples of its own."""
    rng = np.random.default_rng(0)
    turned = [i % 2 == 1 for i in range(12)]
    clients = [(*readings(t, 60, rng), *readings(t, 40, rng)) for t in turned]
    return ct.Population.of(clients, classes=["low", "high"], group=[int(t) for t in turned])


def divided() -> ct.Population:
    """One set of samples and labels, divided among eight clients."""
    rng = np.random.default_rng(0)
    x, y = readings(False, 800, rng)
    return ct.partition((x, y), ct.Dirichlet(alpha=0.5), clients=8)


def main(rounds: int = 10) -> None:
    solver = ct.Solver(lr=0.1, epochs=2, batch=16)
    for method in (ct.FedAvg(solver), ct.FedClust(solver, fraction=1.0)):
        result = ct.fit(method, places(), "mclr", rounds=rounds)
        found = result.state.k
        print(f"{type(method).__name__:9} {result.accuracy.mean():.3f}  {found} models")
    print(divided())


if __name__ == "__main__":
    main()
