from __future__ import annotations

import math

import pytest
import torch

from fiveshot.backbones import Backbone, adapters
from fiveshot.errors import InputError
from fiveshot.tuning import TUNE_RECIPES, TuneRecipe, get_recipe, parse_setting
from fiveshot.tuning._trainer import learning_rate, make_network, make_optimizer, set_learning_rate


def test_the_paper_s_values() -> None:
    paper = get_recipe("paper")
    assert (paper.optimizer, paper.lr, paper.momentum, paper.weight_decay) == ("sgd", 0.01, 0.9, 5e-4)
    assert (paper.batch_size, paper.epochs, paper.label_smoothing, paper.margin) == (48, 40, 0.0, 0.0)
    assert (paper.bottleneck, paper.scale, paper.dropout) == (64, 0.1, 0.1)
    assert (paper.head_scale, paper.head_scale_learnable) == (1.0, True)
    assert (paper.crop_scale, paper.crop_ratio, paper.flip) == (None, (3 / 4, 4 / 3), 0.5)
    assert paper.schedule == "cosine-per-epoch"


def test_the_paper_s_values_reach_network_and_optimizer(backbone: Backbone) -> None:
    paper = get_recipe("paper")
    network = make_network(backbone, 7, paper)
    optimizer = make_optimizer(network, paper)
    assert type(optimizer) is torch.optim.SGD
    for group in optimizer.param_groups:
        assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.01, 0.9, 5e-4)
        assert not group["nesterov"]
    first = adapters(backbone.model)[0]
    assert (first.down.out_features, first.scale, first.dropout.p) == (64, 0.1, 0.1)
    scale = network.classifier.scale
    assert isinstance(scale, torch.nn.Parameter)
    assert scale.item() == 1.0
    assert any(scale is p for group in optimizer.param_groups for p in group["params"])
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert trained == {id(p) for p in network.parameters() if p.requires_grad}
    assert network.classifier.weight.shape == (7, backbone.width)


def test_the_paper_s_schedule_is_torch_s_own(backbone: Backbone) -> None:
    paper = get_recipe("paper").replace(epochs=5)
    network = make_network(backbone, 2, paper)
    optimizer, oracle = make_optimizer(network, paper), torch.optim.SGD(network.parameters(), lr=paper.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(oracle, T_max=5, eta_min=0.0)
    for epoch in range(5):
        for step in range(3):
            set_learning_rate(optimizer, learning_rate(paper, 3 * epoch + step, steps_per_epoch=3))
            assert optimizer.param_groups[0]["lr"] == pytest.approx(oracle.param_groups[0]["lr"], rel=1e-6)
        oracle.step()
        schedule.step()


def test_our_values_reach_the_optimizer(backbone: Backbone) -> None:
    recipe = TuneRecipe(lr=2e-3, weight_decay=0.03, head_scale=12.0, bottleneck=5)
    network = make_network(backbone, 3, recipe)
    optimizer = make_optimizer(network, recipe)
    assert type(optimizer) is torch.optim.AdamW
    assert [group["lr"] for group in optimizer.param_groups] == [2e-3]
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.03}
    assert not isinstance(network.classifier.scale, torch.nn.Parameter)
    assert network.classifier.scale.item() == 12.0
    assert len(network.classifier.weight) == 3


def test_the_rate_falls_to_zero_with_every_step() -> None:
    recipe = TuneRecipe(lr=1.0, epochs=10)
    rates = [learning_rate(recipe, step, steps_per_epoch=10) for step in range(100)]
    assert rates[0] == 1.0
    assert rates[50] == pytest.approx(0.5)  # half-way down the cosine
    assert rates[-1] == pytest.approx((1 + math.cos(math.pi * 99 / 100)) / 2)
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 1}, "no recipe value 'learning_rate'"),
        ({"dropuot": 0.1}, "did you mean 'dropout'"),
        ({"optimizer": "adam"}, "no optimizer 'adam'; did you mean 'adamw'"),
        ({"schedule": "cosin"}, "did you mean 'cosine'"),
        ({"lr": 0}, "lr=0 cannot be used"),
        ({"lr": math.nan}, "lr=nan cannot be used"),
        ({"lr": "1"}, "lr='1' cannot be used"),
        ({"epochs": 2.5}, "epochs=2.5 cannot be used; it must be a whole number"),
        ({"epochs": True}, "epochs=True cannot be used"),
        ({"dropout": 1.0}, "dropout=1.0 cannot be used"),
        ({"crop_scale": (0.5, 1.2)}, "crop_scale"),
        ({"crop_ratio": 3}, "give two numbers"),
        ({"margin": -0.1}, "margin=-0.1 cannot be used; it must be 0 or more"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_wrong_values_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        TUNE_RECIPES["ours"].replace(**change)


def test_a_recipe_survives_json() -> None:
    recipe = TuneRecipe(crop_scale=(0.2, 0.9), schedule="cosine-per-epoch", seed=7)
    assert TuneRecipe.from_json(recipe.to_json()) == recipe
    with pytest.raises(InputError, match="recipe value 'colour'"):
        TuneRecipe.from_json({**recipe.to_json(), "colour": 1})


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("epochs=7", ("epochs", 7)),
        ("margin=0.2", ("margin", 0.2)),
        ("weight-decay = 0.1", ("weight_decay", 0.1)),
        ("head_scale_learnable=yes", ("head_scale_learnable", True)),
        ("optimizer=sgd", ("optimizer", "sgd")),
        ("crop_scale=none", ("crop_scale", None)),
    ],
)
def test_settings_are_read_in_their_type(text: str, read: tuple[str, object]) -> None:
    assert parse_setting(text) == read


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs", "write key=value"),
        ("epochs=1.5", "give a value of type int"),
        ("flip=high", "give a value of type float"),
        ("head_scale_learnable=maybe", "give a value of type bool"),
        ("crop_scale=0.2;1", "two numbers such as 0.2,1"),
        ("epoch=3", "did you mean 'epochs'"),
    ],
)
def test_settings_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_setting(text)
