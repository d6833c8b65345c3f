import inspect
import pkgutil
import subprocess
import sys

import pytest
import torch
from torch import nn

from coterie.core.errors import ConfigError
from coterie.core.layout import Layout
from coterie.models.factory import build
from coterie.models.networks.mobilenet import InvertedResidual
from coterie.models.zoo import MODELS, check, find

# What the papers' tables say (cnn-s is ours), written down a second time.
PARAMETERS = {
    ("mclr", (1, 28, 28), 10): 7_850,
    ("dnn2", (1, 28, 28), 10): 159_010,
    ("mlp", (1, 28, 28), 10): 535_818,
    ("cnn-s", (1, 8, 8), 10): 16 * 9 + 16 + 32 * 16 * 9 + 32 + 128 * 10 + 10,
    ("cnn-m", (1, 28, 28), 10): 33_580,
    ("cnn-c", (3, 32, 32), 10): 6_882,
    ("cnn-f", (1, 28, 28), 10): 18_378,
    ("lenet5", (3, 32, 32), 10): 62_006,
    ("lenet5", (1, 28, 28), 10): 44_426,
    ("cnn5", (3, 32, 32), 10): 307_842,
    ("cnn5-wide", (3, 32, 32), 20): 1_064_724,
    ("leaf-cnn", (1, 28, 28), 62): 6_603_710,
    ("mobilenet-v2", (3, 32, 32), 10): 2_236_682,
    ("mobilenet-v2", (3, 32, 32), 100): 2_351_972,
    ("resnet9", (3, 32, 32), 100): 6_621_540,
    ("alexnet", (3, 32, 32), 10): 23_272_266,
    ("vgg16", (3, 32, 32), 10): 15_245_130,
}
SHAPES = [(1, 28, 28), (3, 32, 32), (1, 16, 16), (3, 17, 21), (1, 8, 8), (2, 4, 5), (1, 3, 9), (7,)]


def refused(**how) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        build(how.pop("model"), shape=how.pop("shape", (3,)), classes=how.pop("classes", 2), **how)
    return caught.value


def bits(net: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in net.parameters()])


# -- the table ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "shape", "classes"), PARAMETERS)
def test_a_network_has_the_papers_number_of_parameters(name, shape, classes):
    net = build(name, shape=shape, classes=classes)
    assert sum(p.numel() for p in net.parameters()) == PARAMETERS[name, shape, classes]


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_the_table_states_the_parameters_of_its_own_input(model):
    assert PARAMETERS[model.name, model.input, model.classes] == model.parameters


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_the_table_states_the_keywords_of_each_builder(model):
    keywords = [*inspect.signature(pkgutil.resolve_name(model.builder)).parameters]
    assert keywords == ["shape", "classes", *(["norm"] if model.norms else []), *model.options]


def test_the_table_can_be_read_without_torch():
    code = "import sys; from coterie.models import zoo; zoo.check('mlp'); "
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_name_is_answered_with_a_similar_one():
    with pytest.raises(ConfigError) as caught:
        find("LeNet-5")
    assert (caught.value.code, caught.value.why) == ("C033", "a similar name exists: lenet5")


# -- inputs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape"),
    [(m.name, shape) for m in MODELS.values() for shape in SHAPES if m.fits(shape)],
)
def test_a_network_takes_every_input_that_fits(name, shape):
    net = build(name, shape=shape, classes=3)
    assert net(torch.zeros(2, *shape)).shape == (2, 3)


@pytest.mark.parametrize("name", [m.name for m in MODELS.values() if m.least])
def test_an_input_too_small_is_refused_with_the_models_that_fit(name):
    side = MODELS[name].least - 1
    error = refused(model=name, shape=(1, side + 9, side))
    fitting = error.fix.removeprefix("models that fit: ").split(", ")
    assert error.code == "C030"
    assert name not in fitting
    assert {"mclr", "dnn2", "mlp"} <= {*fitting}


@pytest.mark.parametrize("name", ["cnn-s", "cnn-m", "cnn-c", "cnn-f", "lenet5", "cnn5", "leaf-cnn"])
def test_no_input_is_refused_that_would_do(name):
    side = MODELS[name].least - 1
    builder = pkgutil.resolve_name(MODELS[name].builder)
    with pytest.warns(UserWarning, match="zero-element"):  # nothing is left of the image
        builder((1, side, side), 2)


def test_digits_fit_the_small_networks():
    fitting = [m.name for m in MODELS.values() if m.fits((1, 8, 8))]
    assert fitting == ["mclr", "dnn2", "mlp", "cnn-s", "leaf-cnn"]


@pytest.mark.parametrize("name", ["resnet9", "mobilenet-v2"])
def test_batch_norm_survives_one_sample_of_the_smallest_image(name):
    net = build(name, shape=(1, 16, 16), classes=2, norm="batch")
    assert net.train()(torch.randn(1, 1, 16, 16)).isfinite().all()


def test_mobilenet_leaves_four_by_four_pixels_of_a_cifar_image():
    net = build("mobilenet-v2", shape=(3, 32, 32), classes=10)
    before = nn.Sequential(
        *[part for name, part in net.named_children() if name[:2] in ("st", "la")]
    )
    assert before(torch.zeros(1, 3, 32, 32)).shape == (1, 1280, 4, 4)


@pytest.mark.parametrize(
    ("outputs", "stride", "kept"), [(16, 1, True), (16, 2, False), (24, 1, False)]
)
def test_an_inverted_residual_adds_its_input_where_the_shapes_agree(outputs, stride, kept):
    block = InvertedResidual(16, outputs, expand=6, stride=stride, norm="group")
    for p in block.parameters():
        nn.init.zeros_(p)
    x = torch.randn(2, 16, 4, 4)
    out = block(x)
    assert torch.equal(out, x if kept else torch.zeros_like(out))


@pytest.mark.parametrize("name", [name for name in MODELS if name != "mclr"])
def test_what_enters_the_head_was_rectified(name):
    model = MODELS[name]
    layout = Layout(build(name, shape=model.input, classes=model.classes))
    features, _ = layout.features(layout.initial, torch.randn(2, *model.input))
    assert layout.head_name == list(dict(layout._template.named_modules()))[-1]
    assert features.min() >= 0 < features.max()


# -- options -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "norm", "kind"),
    [
        ("resnet9", None, nn.GroupNorm),
        ("resnet9", "group", nn.GroupNorm),
        ("resnet9", "batch", nn.BatchNorm2d),
        ("mobilenet-v2", None, nn.BatchNorm2d),
        ("mobilenet-v2", "group", nn.GroupNorm),
        ("mobilenet-v2", "batch", nn.BatchNorm2d),
    ],
)
def test_normalisation_is_the_one_asked_for(name, norm, kind):
    net = build(name, shape=(3, 32, 32), classes=10, norm=norm)
    norms = {type(part) for part in net.modules() if "Norm" in type(part).__name__}
    assert norms == {kind}


@pytest.mark.parametrize("name", ["resnet9", "mobilenet-v2"])
def test_normalisation_does_not_change_the_number_of_parameters(name):
    sizes = {
        sum(p.numel() for p in build(name, shape=(3, 16, 16), classes=4, norm=norm).parameters())
        for norm in ("group", "batch")
    }
    assert len(sizes) == 1


@pytest.mark.parametrize("name", [m.name for m in MODELS.values() if "dropout" in m.options])
def test_dropout_is_off_until_asked_for(name):
    model = MODELS[name]
    rates = [
        {part.p for part in build(name, shape=model.input, classes=2, **how).modules()
         if isinstance(part, nn.Dropout)}
        for how in ({}, {"dropout": 0.3})
    ]  # fmt: skip
    assert rates == [set(), {0.3}]


def test_hidden_widths_can_be_chosen():
    net = build("dnn2", shape=(4,), classes=2, hidden=[3, 5])
    assert [tuple(p.shape) for p in net.parameters()][::2] == [(3, 4), (5, 3), (2, 5)]


@pytest.mark.parametrize(
    ("name", "how", "says"),
    [
        ("lenet5", {"norm": "group"}, "lenet5 has no 'group' normalisation"),
        ("resnet9", {"norm": "layer"}, "resnet9 has no 'layer' normalisation"),
        ("lenet5", {"width": 3}, "lenet5 has no option 'width'"),
        ("lenet5", {"dropout": 2.0}, "lenet5 cannot be built with {'dropout': 2.0}"),
        ("dnn2", {"hidden": 200}, "dnn2 cannot be built with {'hidden': 200}"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(name, how, says):
    error = refused(model=name, shape=(3, 32, 32), **how)
    assert error.code == "C034"
    assert error.what.startswith(says)


def test_a_file_can_be_checked_before_the_shape_is_known():
    assert check("resnet9", norm="batch") is MODELS["resnet9"]


# -- seeds -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mclr", "cnn-s", "lenet5", "resnet9"])
def test_the_seed_decides_every_weight(name):
    nets = [build(name, shape=(1, 16, 16), classes=2, seed=seed) for seed in (1, 1, 2)]
    first, again, other = map(bits, nets)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_building_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    build("cnn-s", shape=(1, 8, 8), classes=10, seed=5)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_seed_of_a_factory_decides_its_weights():
    nets = [build(lambda: nn.Linear(3, 2), shape=(3,), classes=2, seed=s) for s in (1, 1, 2)]
    first, again, other = map(bits, nets)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


# -- the user's own ----------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Write a module of the user's; each has a name of its own, for imports are remembered."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> None:
        tmp_path.joinpath(f"{name}.py").write_text("from torch import nn\n" + text)

    return write


def test_a_named_factory_gets_what_its_signature_names(own):
    own("own_net", "def net(shape, classes, width=3):\n return nn.Sequential(nn.Linear(*shape, "
        "width), nn.Linear(width, classes))\n")  # fmt: skip
    net = build("own_net:net", shape=(4,), classes=5, width=7)
    assert [tuple(p.shape) for p in net.parameters()] == [(7, 4), (7,), (5, 7), (5,)]


def test_a_factory_that_names_nothing_gets_nothing():
    assert isinstance(build(lambda: nn.Linear(3, 2), shape=(3,), classes=2), nn.Linear)


def test_a_factory_that_takes_anything_is_given_only_the_options():
    got = {}

    def factory(**options):
        got.update(options)
        return nn.Linear(3, 2)

    build(factory, shape=(3,), classes=2, norm="group", depth=4)
    assert got == {"norm": "group", "depth": 4}


def test_a_class_is_a_factory():
    class Net(nn.Linear):
        def __init__(self, shape, classes):
            super().__init__(shape[0], classes)

    assert isinstance(build(Net, shape=(3,), classes=2), Net)


def test_a_module_comes_back_as_it_was():
    net = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)).train()
    net[0].eval()
    before = {name: t.clone() for name, t in net.state_dict().items()}
    assert build(net, shape=(3,), classes=2) is net
    assert [part.training for part in net.modules()] == [True, False, True]
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())


def test_lazy_layers_get_their_size():
    net = build(lambda: nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2)), shape=(3,), classes=2)
    assert Layout(net).size == 4 * 3 + 4 + 2 * 4 + 2


def test_the_exception_of_an_import_comes_first(own):
    own("own_broken", "import a_package_nobody_has\n")
    error = refused(model="own_broken:net")
    assert error.code == "C031"
    assert str(error).splitlines()[0] == (
        "ModuleNotFoundError: No module named 'a_package_nobody_has'"
    )


def test_a_factory_that_is_not_there_is_named(own):
    own("own_other", "def net(): ...\n")
    error = refused(model="own_other:nett")
    assert error.code == "C031"
    assert error.where == 'model "own_other:nett"'
    assert "has no attribute 'nett'" in error.what


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda width: nn.Linear(width, 2), "TypeError: "),
        (lambda: {"not": "a module"}, "<lambda> returned dict, not an nn.Module"),
        (lambda: nn.Linear(4, 2), "RuntimeError: mat1 and mat2 shapes"),
        (lambda: nn.Linear(3, 5), "<lambda> answers (2, 5) to 2 samples, expected (2, 2)"),
        (lambda: nn.LSTM(3, 2), "<lambda> answers a tuple, expected a tensor of shape (2, 2)"),
        (7, "7 is not a callable object"),
    ],
)
def test_a_factory_that_fails_says_how(factory, says):
    error = refused(model=factory)
    assert error.code == "C031"
    assert error.what.startswith(says)


class Answers(nn.Linear):
    """A network that answers something else than its logits."""

    def __init__(self, answer):
        super().__init__(3, 2)
        self.answer = answer

    def forward(self, x):
        return self.answer(super().forward(x))


class Asks(nn.Linear):
    """A network that wants more than the samples."""

    def forward(self, x, mask):
        return super().forward(x) * mask


@pytest.mark.parametrize(
    ("network", "fix"),
    [
        (nn.Linear(4, 2), "let the factory take shape, and size its first layers by it"),
        (nn.Linear(3, 2).double(), "it has float64: make the network float32 too, with .float()"),
        (nn.Embedding(9, 2), "take them as they are, or begin with x.long()"),
        (Asks(3, 2), "let forward take the samples alone: forward(self, x)"),
        (Answers(lambda out: {"logits": out}), "return the logits alone, such as out['logits']"),
        (Answers(lambda out: (out, None)), "return the logits alone, such as out[0]"),
        (Answers(lambda out: out.argmax(1)), "return the logits, not their argmax"),
        (Answers(lambda out: out.flatten()), "flatten from dimension 1 on"),
        (nn.Linear(3, 5), "let the factory take classes, and size its last layer by it"),
    ],
)
def test_what_to_do_about_a_network_follows_from_what_is_wrong_with_it(network, fix):
    assert fix in refused(model=network).fix


def test_an_option_a_factory_does_not_take_is_refused():
    error = refused(model=lambda: nn.Linear(3, 2), norm="group")
    assert (error.code, error.what) == ("C034", "<lambda> takes no 'norm'")
