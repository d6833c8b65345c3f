import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy, relu

from coterie.core.errors import ConfigError
from coterie.core.layout import WORDS, Layout
from coterie.models.factory import build


class Tied(nn.Module):
    """Two names for one weight: the decoder's is the encoder's."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(4, 4)
        self.middle = nn.Linear(4, 4)
        self.decoder = nn.Linear(4, 4)
        self.decoder.weight = self.encoder.weight

    def forward(self, x):
        return self.decoder(relu(self.middle(relu(self.encoder(x)))))


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 4))


def frozen() -> nn.Module:
    """A frozen layer in front, so that the row is not in the order of registration."""
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 4))
    net[0].requires_grad_(False)
    return net


def counting() -> nn.Module:
    """A table that is not saved with the module, besides one that is."""
    net = nn.Sequential(nn.Linear(4, 4))
    net.register_buffer("table", torch.arange(3.0), persistent=False)
    net.register_buffer("scale", torch.ones(2))
    return net


def seeded(make, seed=0):
    return build(lambda: make(), shape=(4,), classes=4, seed=seed)


NETS = {
    "tied": lambda: seeded(Tied),
    "normed": lambda: seeded(normed),
    "frozen": lambda: seeded(frozen),
    "counting": lambda: seeded(counting),
    "linear": lambda: seeded(lambda: nn.Linear(4, 4)),
    "cnn-s": lambda: build("cnn-s", shape=(1, 8, 8), classes=4),
    "resnet9": lambda: build("resnet9", shape=(1, 16, 16), classes=4, norm="batch"),
}
SMALL = [name for name in NETS if name != "resnet9"]
every = pytest.mark.parametrize("name", NETS)
small = pytest.mark.parametrize("name", SMALL)


def samples(name: str, n: int = 6) -> torch.Tensor:
    shape = {"cnn-s": (1, 8, 8), "resnet9": (1, 16, 16)}.get(name, (4,))
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(1))


def drawn(layout: Layout, seed: int = 0) -> torch.Tensor:
    """Any row: not one a network was made with. Positive, for variances are among it."""
    return torch.rand(layout.size, generator=torch.Generator().manual_seed(seed)) / 10 + 0.01


def loss(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return cross_entropy(module(x), torch.arange(len(x)) % 4)


def columns(layout: Layout, names: str) -> list[int]:
    return torch.arange(layout.size)[layout.columns(names)].tolist()


def refused(layout: Layout, names: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        layout.columns(names)
    assert caught.value.code == "C032"
    return caught.value


# -- rows and modules --------------------------------------------------------------------------


@small
@given(seed=st.integers(0, 2**32))
@settings(max_examples=10, deadline=None)
def test_a_row_made_a_module_is_the_same_row(name, seed):
    layout = Layout(NETS[name]())
    row = drawn(layout, seed)
    assert torch.equal(layout.row(layout.module(row)), row)


@every
def test_the_initial_row_is_the_modules_own(name):
    net = NETS[name]()
    assert torch.equal(Layout(net).initial, Layout(net).row(net))


@small
def test_every_column_has_exactly_one_first_name(name):
    layout = Layout(NETS[name]())
    owned = [i for place in layout.slices.values() for i in range(place.start, place.stop)]
    assert owned == [*range(layout.size)]


def test_trainable_columns_come_first():
    layout = Layout(NETS["frozen"]())
    assert list(layout.slices) == ["2.weight", "2.bias", "0.weight", "0.bias"]
    assert layout.trainable == 24


def test_statistics_are_in_the_row_and_counters_are_not():
    layout = Layout(NETS["normed"]())
    assert list(layout.slices)[-2:] == ["1.running_mean", "1.running_var"]
    assert layout.size - layout.trainable == 12


def test_buffers_that_are_not_saved_are_not_in_the_row():
    assert list(Layout(NETS["counting"]()).slices) == ["0.weight", "0.bias", "scale"]


def test_tied_parameters_are_there_once():
    net = NETS["tied"]()
    assert Layout(net).size == sum(p.numel() for p in net.parameters()) == 3 * 4 + 2 * 16


def test_a_module_made_of_a_row_keeps_its_ties():
    layout = Layout(NETS["tied"]())
    module = layout.module(layout.initial)
    assert module.decoder.weight is module.encoder.weight


def test_the_layout_does_not_share_numbers_with_the_module_it_was_made_from():
    net = NETS["cnn-s"]()
    layout = Layout(net)
    before = layout.module(layout.initial).fc1.bias.clone()
    net.fc1.bias.data.add_(1)
    assert torch.equal(layout.module(layout.initial).fc1.bias, before)


def test_making_a_layout_leaves_the_module_in_its_mode():
    net = NETS["normed"]().train()
    Layout(net)
    assert all(part.training for part in net.modules())


def test_a_module_of_the_user_is_not_changed_by_later_work():
    layout = Layout(NETS["normed"]())
    module = layout.module(layout.initial)
    layout.flat(drawn(layout)).w.add_(1)
    layout.predict(drawn(layout), samples("normed"))
    assert torch.equal(layout.row(module), layout.initial)


def test_a_module_of_the_user_is_in_evaluation_mode():
    layout = Layout(NETS["normed"]().train())
    assert not any(part.training for part in layout.module(layout.initial).modules())


def test_modules_made_of_rows_are_apart():
    layout = Layout(NETS["linear"]())
    one, other = layout.module(layout.initial), layout.module(drawn(layout))
    assert torch.equal(layout.row(one), layout.initial)
    assert torch.equal(layout.row(other), drawn(layout))


def test_loading_writes_every_number():
    layout, net = Layout(NETS["normed"]()), NETS["normed"]()
    layout.load(drawn(layout), net)
    assert torch.equal(layout.row(net), drawn(layout))


def test_a_row_of_another_size_is_refused():
    layout = Layout(NETS["linear"]())
    with pytest.raises(ValueError, match=r"a row must be \(20,\), got \(21,\)"):
        layout.module(torch.zeros(21))


def test_a_module_of_another_kind_is_refused():
    with pytest.raises(ValueError, match=r"weight: expected \(4, 4\), got \(4, 3\)"):
        Layout(nn.Linear(4, 4)).row(nn.Linear(3, 4))


def test_a_layout_survives_pickling_even_while_mounted():
    layout = Layout(NETS["cnn-s"]())
    row, x = drawn(layout), samples("cnn-s")
    layout.flat(layout.initial)
    layout.predict(layout.initial, x)
    again = pickle.loads(pickle.dumps(layout))
    assert again.slices == layout.slices
    assert torch.equal(again.predict(row, x), layout.predict(row, x))
    assert torch.equal(again.row(again.flat(row).module), row)


@pytest.mark.parametrize(
    ("net", "says"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()), "must all be of one real type"),
        (nn.Linear(2, 2).requires_grad_(False), "Linear has no trainable parameter"),
        (nn.ReLU(), "ReLU has no trainable parameter"),
    ],
)
def test_a_module_that_is_no_row_is_refused(net, says):
    with pytest.raises(ConfigError, match=says) as caught:
        Layout(net)
    assert caught.value.code == "C035"


def test_a_module_of_doubles_is_a_row_of_doubles():
    layout = Layout(NETS["linear"]().double())
    assert layout.dtype == layout.initial.dtype == layout.flat(layout.initial).w.dtype
    assert layout.dtype == torch.float64


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_lazy_layers_without_a_size_are_refused():
    with pytest.raises(ConfigError, match="has no size yet"):
        Layout(nn.LazyLinear(3))


@pytest.mark.parametrize(("name", "expected"), [("normed", True), ("cnn-s", False)])
def test_batch_normalisation_is_seen(name, expected):
    assert Layout(NETS[name]()).has_batch_norm is expected


# -- names -------------------------------------------------------------------------------------


@small
def test_params_and_buffers_share_out_all_columns(name):
    layout = Layout(NETS[name]())
    assert columns(layout, "params") + columns(layout, "buffers") == columns(layout, "all")
    assert columns(layout, "all") == [*range(layout.size)]


@small
def test_head_and_body_share_out_the_trainable_columns(name):
    layout = Layout(NETS[name]())
    parts = columns(layout, "head") + columns(layout, "body")
    assert sorted(parts) == columns(layout, "params")


@small
def test_the_columns_of_the_head_are_the_heads(name):
    layout = Layout(NETS[name]())
    marked = layout.initial.clone()
    marked[layout.columns("head")] = 7
    module = layout.module(marked)
    head = module.get_submodule(layout.head_name)
    assert (head.weight == 7).all()
    assert (head.bias == 7).all()
    assert len(columns(layout, "head")) == head.weight.numel() + head.bias.numel()


@small
def test_weight_and_bias_of_the_head_can_be_named(name):
    layout = Layout(NETS[name]())
    parts = columns(layout, "head.weight") + columns(layout, "head.bias")
    assert sorted(parts) == columns(layout, "head")


@small
def test_the_names_of_all_tensors_are_all_columns(name):
    layout = Layout(NETS[name]())
    assert columns(layout, ",".join(layout.slices)) == [*range(layout.size)]


def test_the_top_two_layers_of_lenet5_are_those_of_the_paper():
    layout = Layout(build("lenet5", shape=(3, 32, 32), classes=10))
    assert len(columns(layout, "fc2,fc3")) == 11_014
    assert len(columns(layout, "head")) == 850


def test_columns_side_by_side_are_a_view():
    layout = Layout(NETS["cnn-s"]())
    row = layout.initial.clone()
    row[layout.columns("conv2, fc1")].zero_()
    assert not row[layout.columns("fc1,conv2")].any()


def test_columns_apart_are_indices_in_order():
    layout = Layout(NETS["cnn-s"]())
    chosen = layout.columns("fc1.bias,conv1.bias")
    assert isinstance(chosen, torch.Tensor)
    assert chosen.tolist() == [*range(144, 160), *range(5312, 5316)]


def test_a_tilde_means_all_other_columns():
    layout = Layout(NETS["normed"]())
    assert sorted(columns(layout, "~head") + columns(layout, "head")) == columns(layout, "all")


def test_no_columns_are_none():
    assert columns(Layout(NETS["linear"]()), "none") == []


def test_a_name_twice_counts_once():
    layout = Layout(NETS["cnn-s"]())
    assert layout.columns("fc1,head,fc1.weight") == layout.columns("fc1")


def test_a_name_is_not_a_mere_beginning():
    net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(11)])
    assert columns(Layout(net), "1") == [*range(20, 40)]


def test_a_tied_weight_answers_to_both_its_names():
    layout = Layout(NETS["tied"]())
    assert layout.columns("decoder.weight") == layout.columns("encoder.weight")


def test_columns_are_found_once():
    layout = Layout(NETS["cnn-s"]())
    assert layout.columns("conv1.bias,fc1.bias") is layout.columns("conv1.bias,fc1.bias")


def test_the_head_can_be_named():
    net = NETS["tied"]()
    layout = Layout(net, head="middle")
    assert layout.columns("head") == layout.columns("middle")


def test_a_head_may_be_several_layers():
    net = nn.Sequential()
    net.add_module("base", nn.Linear(4, 3))
    net.add_module("top", nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)))
    layout = Layout(net, head="top")
    assert columns(layout, "head") == columns(layout, "top.0,top.2")
    assert layout.features(layout.initial, torch.zeros(2, 4))[0].shape == (2, 3)


@pytest.mark.parametrize("head", ["fc9", "fc1.weight", "flat"])
def test_a_head_that_is_no_layer_is_refused(head):
    with pytest.raises(ConfigError) as caught:
        Layout(NETS["cnn-s"](), head=head)
    assert caught.value.code == "C032"


@pytest.mark.parametrize("names", ["fc7", "fc1,fc7", "", "conv1,", "flat", "conv"])
def test_an_unknown_name_is_refused_with_the_known_ones(names):
    error = refused(Layout(NETS["cnn-s"]()), names)
    assert all(known in error.fix for known in (*WORDS, "conv1", "conv2", "fc1"))


def test_an_unknown_name_is_answered_with_a_similar_one():
    assert refused(Layout(NETS["cnn-s"]()), "fc1.wieght").why.endswith(": fc1.weight")


def test_a_network_without_a_linear_layer_has_no_head():
    layout = Layout(nn.Conv2d(1, 2, 3))
    assert layout.head_name is None
    assert refused(layout, "body").what == "the network has no head"


# -- training ----------------------------------------------------------------------------------


@every
def test_backward_writes_autograds_own_gradients(name):
    layout = Layout(NETS[name]())
    x = samples(name)
    net = layout.flat(layout.initial)
    loss(net.module, x).backward()
    got = net.grad.clone()
    net = layout.flat(layout.initial)
    learning = [p for p in net.module.parameters() if p.requires_grad]
    expected = torch.autograd.grad(loss(net.module, x), learning)
    assert got.any()
    assert torch.equal(got, torch.cat([g.flatten() for g in expected]))


@every
def test_backward_adds_to_what_is_there(name):
    layout = Layout(NETS[name]())
    net = layout.flat(layout.initial)
    net.module.eval()  # the same numbers twice, whatever the batch
    loss(net.module, samples(name)).backward()
    once = net.grad.clone()
    loss(net.module, samples(name)).backward()
    torch.testing.assert_close(net.grad, 2 * once)


@every
def test_moving_the_row_moves_the_module(name):
    layout = Layout(NETS[name]())
    net = layout.flat(layout.initial)
    net.w.copy_(drawn(layout))
    assert torch.equal(layout.row(net.module), drawn(layout))


@small
def test_flat_steps_are_those_of_pytorch(name):
    layout = Layout(NETS[name]())
    x = samples(name)
    plain = layout.module(layout.initial).train()
    optimiser = torch.optim.SGD([p for p in plain.parameters() if p.requires_grad], lr=0.1)
    net = layout.flat(layout.initial)
    for _ in range(3):
        optimiser.zero_grad()
        loss(plain, x).backward()
        optimiser.step()
        net.grad.zero_()
        loss(net.module, x).backward()
        net.w[: layout.trainable].add_(net.grad, alpha=-0.1)
    torch.testing.assert_close(net.w, layout.row(plain))


def test_statistics_of_the_batch_show_in_the_row():
    layout = Layout(NETS["normed"]())
    net = layout.flat(layout.initial)
    net.module(samples("normed"))
    statistics = layout.columns("buffers")
    assert not torch.equal(net.w[statistics], layout.initial[statistics])


def test_mounting_leaves_nothing_of_the_one_before():
    layout = Layout(NETS["normed"]())
    net = layout.flat(drawn(layout), train="head")
    loss(net.module, samples("normed")).backward()
    net.module.eval()
    net = layout.flat(layout.initial)
    assert net.module.training
    assert net.module[1].num_batches_tracked == 0
    assert torch.equal(net.w, layout.initial)
    assert not net.grad.any()
    assert net.mask is None
    assert all(p.requires_grad for p in net.module.parameters())


def test_buffers_beside_the_row_start_anew_with_every_mount():
    layout = Layout(NETS["counting"]())
    layout.flat(layout.initial).module.table.add_(1)
    assert layout.flat(layout.initial).module.table.tolist() == [0, 1, 2]


def test_mounting_copies_the_row():
    layout = Layout(NETS["linear"]())
    row = layout.initial.clone()
    layout.flat(row).w.add_(1)
    assert torch.equal(row, layout.initial)


def test_gradients_thrown_away_are_back_with_the_next_mount():
    layout = Layout(NETS["linear"]())
    layout.flat(layout.initial).module.zero_grad(set_to_none=True)
    net = layout.flat(layout.initial)
    loss(net.module, samples("linear")).backward()
    assert net.grad.any()


@pytest.mark.parametrize("train", ["head", "body", "conv1,fc1.bias"])
def test_only_the_columns_named_get_gradients(train):
    layout = Layout(NETS["cnn-s"]())
    net = layout.flat(layout.initial, train=train)
    loss(net.module, samples("cnn-s")).backward()
    chosen = torch.zeros(layout.trainable)
    chosen[layout.columns(train)] = 1
    assert torch.equal(net.mask, chosen)
    assert not net.grad[chosen == 0].any()


@pytest.mark.parametrize("train", ["head", "body", "conv1,fc1.bias"])
def test_the_gradients_of_some_columns_are_those_of_all(train):
    layout = Layout(NETS["cnn-s"]())
    grads = []
    for names in ("all", train):
        net = layout.flat(layout.initial, train=names)
        loss(net.module, samples("cnn-s")).backward()
        grads.append(net.grad[layout.columns(train)].clone())
    torch.testing.assert_close(grads[1], grads[0])


@pytest.mark.parametrize("train", ["all", "params", "head,body", "params,buffers"])
def test_all_that_can_learn_needs_no_mask(train):
    layout = Layout(NETS["normed"]())
    assert layout.flat(layout.initial, train=train).mask is None


@every
def test_the_gradient_is_that_of_the_mean_cross_entropy(name):
    layout = Layout(NETS[name]())
    x = samples(name)
    net = layout.flat(layout.initial)
    loss(net.module, x).backward()
    expected = net.grad.clone()
    net = layout.flat(layout.initial)
    for _ in range(2):  # what was there before is forgotten
        net.gradient(x, torch.arange(len(x)) % 4)
    torch.testing.assert_close(net.grad, expected)


def test_a_layer_that_does_not_learn_keeps_its_statistics():
    layout = Layout(NETS["normed"]())
    net = layout.flat(layout.initial, train="head")
    net.gradient(samples("normed"), torch.arange(6) % 4)
    assert torch.equal(net.w[layout.columns("buffers")], layout.initial[layout.columns("buffers")])


@pytest.mark.row(21, counts="pairs of a method and odd data")
def test_one_sample_is_normalised_by_the_running_statistics():
    layout = Layout(NETS["normed"]())
    statistics = layout.columns("buffers")
    net = layout.flat(layout.initial)
    net.gradient(samples("normed", 1), torch.zeros(1, dtype=torch.long))
    assert net.grad.any()
    assert torch.equal(net.w[statistics], layout.initial[statistics])


def test_two_samples_after_one_move_the_statistics_again():
    layout = Layout(NETS["normed"]())
    statistics = layout.columns("buffers")
    net = layout.flat(layout.initial)
    net.gradient(samples("normed", 1), torch.zeros(1, dtype=torch.long))
    net.gradient(samples("normed", 2), torch.zeros(2, dtype=torch.long))
    assert not torch.equal(net.w[statistics], layout.initial[statistics])


def test_dropout_draws_from_its_address_and_leaves_the_global_generator_alone():
    layout = Layout(seeded(lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 4))))
    net = layout.flat(layout.initial)
    before, outputs = torch.get_rng_state(), []
    for seed in (1, 1, 2):
        with net.drawing(torch.Generator().manual_seed(seed)):
            outputs.append(net.module(samples("linear")))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("train", ["none", "buffers"])
def test_training_nothing_is_refused(train):
    layout = Layout(NETS["normed"]())
    with pytest.raises(ConfigError, match="trains nothing"):
        layout.flat(layout.initial, train=train)


def test_a_buffer_replaced_in_forward_is_refused():
    class Running(nn.Linear):
        def __init__(self):
            super().__init__(4, 4)
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x):
            self.mean = 0.9 * self.mean + x.mean(0)
            return super().forward(x - self.mean)

    layout = Layout(Running())
    layout.flat(layout.initial).module(samples("linear"))
    with pytest.raises(ConfigError, match="'mean' of Running was replaced"):
        layout.flat(layout.initial)


def test_mounting_again_makes_nothing_new():
    layout = Layout(NETS["normed"]())
    first, again = layout.flat(layout.initial), layout.flat(drawn(layout))
    assert first is again  # so it costs a copy of the row, not of the network


# -- reading -----------------------------------------------------------------------------------


@every
def test_predictions_are_those_of_the_plain_module(name):
    layout = Layout(NETS[name]())
    row, x = drawn(layout), samples(name)
    with torch.no_grad():
        torch.testing.assert_close(layout.predict(row, x), layout.module(row)(x))


@every
def test_predictions_do_not_depend_on_where_the_row_lies(name):
    layout = Layout(NETS[name]())
    row, x = drawn(layout), samples(name)
    stored = torch.empty(2, layout.size + 1)
    stored[1, 1:] = row
    assert torch.equal(layout.predict(stored[1, 1:], x), layout.predict(row, x))


@every
def test_predictions_in_batches_are_predictions(name):
    layout = Layout(NETS[name]())
    x = samples(name, 7)
    whole, parts = (layout.predict(layout.initial, x, batch=b) for b in (7, 3))
    torch.testing.assert_close(parts, whole)


@every
def test_no_samples_give_no_predictions(name):
    layout = Layout(NETS[name]())
    features, logits = layout.features(layout.initial, samples(name, 0))
    assert logits.shape == (0, 4)
    assert len(features) == 0


def test_predictions_carry_no_gradient():
    layout = Layout(NETS["cnn-s"]())
    assert not layout.predict(layout.initial, samples("cnn-s")).requires_grad


def test_reading_disturbs_no_training():
    layout = Layout(NETS["normed"]())
    x = samples("normed")
    net = layout.flat(layout.initial)
    loss(net.module, x).backward()
    before = net.w.clone(), net.grad.clone()
    layout.features(drawn(layout), x)
    assert net.module.training
    assert torch.equal(net.w, before[0])
    assert torch.equal(net.grad, before[1])


@every
def test_the_head_makes_the_logits_of_the_features(name):
    layout = Layout(NETS[name]())
    row = drawn(layout)
    features, logits = layout.features(row, samples(name, 7), batch=3)
    head = layout.module(row).get_submodule(layout.head_name)
    with torch.no_grad():
        torch.testing.assert_close(head(features), logits)


def test_features_leave_no_hook_behind():
    layout = Layout(NETS["cnn-s"]())
    layout.features(layout.initial, samples("cnn-s"))
    assert not layout._read(layout.initial).fc1._forward_pre_hooks


def test_a_head_the_samples_never_reach_is_refused():
    class Spare(nn.Linear):
        def __init__(self):
            super().__init__(4, 4)
            self.spare = nn.Linear(4, 4)

    layout = Layout(Spare())
    with pytest.raises(ConfigError, match="'spare' does not see every sample once"):
        layout.features(layout.initial, samples("linear"))
