"""What the page is told is what the model does, computed the long way here."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.analysis.measures.knock_out import switched_off
from sightline.analysis.measures.logit_lens import lens
from sightline.attention.dispatch import record_attention
from sightline.data.preprocessing import preprocessing
from tests.contract.contract import build
from tests.explorer.served import array, png, serving

SIZE, GRID = (20, 28), (5, 7)


def shown(server, size=SIZE, image="s0", model=0):
    """The model, and the normalised image [1, 3, height, width] as it is shown to it."""
    one = server.explorer.subjects[model].model
    return one, preprocessing(one)(server.explorer.pictures.pixels(image), size).unsqueeze(0)


def top(logits):
    return logits.softmax(-1).topk(5)


def test_a_session_says_what_there_is(server):
    said = server.get("/api/session").json
    first, second = said["models"]
    assert list(first) == [
        "id", "name", "encoding", "depth", "heads", "patch_size", "image_size", "prefix", "knob", "directions",
        "classes", "overlays", "sizes",
    ]  # fmt: skip
    assert (first["id"], first["encoding"], first["depth"], first["classes"]) == (0, "lookhere_90", 2, 5)
    assert first["prefix"] == ["class", "register 1"]
    assert second["prefix"] == []
    assert first["image_size"] == [24, 32]
    assert first["knob"]["name"] == "global_slope"
    assert first["knob"]["low"] <= first["knob"]["value"] <= first["knob"]["high"] <= 10
    heads = sorted(tuple(head) for those in first["directions"].values() for head in those)
    assert heads == [(layer, head) for layer in range(2) for head in range(first["heads"])]
    assert all(side % 4 == 0 for side in first["sizes"])
    assert first["overlays"] == ["lens", "colours", "rollout", "norms"]
    assert len(said["images"]) >= 4
    assert len({(one["height"], one["width"]) for one in said["images"]}) > 1
    assert set(said["limits"]) == {"upload_bytes", "max_pixels", "max_tokens"}


def test_a_view_is_a_pass_of_the_model(server):
    said = server.view(size=list(SIZE)).json
    model, image = shown(server)
    with torch.inference_mode():
        best = top(model(image)[0])
    assert said["grid"] == list(GRID)
    assert said["image_size"] == list(SIZE)
    assert said["tokens"] == 35 + 2
    assert said["whole"] is None
    assert said["scores"] == model.config.score_link == "softmax"
    assert [one["name"] for one in said["classes"]] == [f"class {index}" for index in best.indices.tolist()]
    assert [one["probability"] for one in said["classes"]] == pytest.approx(best.values.tolist(), abs=1e-5)
    picture = np.asarray(Image.open(io.BytesIO(server.get(f"/api/views/{said['view']}/picture.png").content)))
    expected = preprocessing(model).view(server.explorer.pictures.pixels("s0"), SIZE)
    assert np.array_equal(picture, expected)


@pytest.mark.parametrize("query", ["0", "9", "34", "prefix:0", "prefix:1"])
def test_attention_is_a_row_of_the_matrix(server, query):
    model, image = shown(server)
    calls = []
    with record_attention(calls.append), torch.inference_mode():
        model(image)
    slot = int(query.removeprefix("prefix:")) + (0 if ":" in query else 2)
    rows = []
    for call in calls:
        segment = call.keys.segments[0]
        bias = call.pattern.bias(segment, segment, 2, 2)[0]
        scores = call.q[0] @ call.k[0].transpose(-1, -2) * call.q.shape[-1] ** -0.5 + bias
        rows.append(scores.softmax(-1)[:, slot])
    expected = torch.stack(rows).numpy()
    view = server.view(size=list(SIZE)).json["view"]
    said = server.get(f"/api/views/{view}/attention?query={query}").json
    layers, heads = said["layers"], said["heads"]
    assert (said["rows"], said["cols"]) == GRID
    maps = array(said["maps"], "<f4", layers, heads, 35)
    prefix = array(said["prefix"], "<f4", layers, heads, 2)
    np.testing.assert_allclose(np.concatenate([prefix, maps], -1), expected, atol=1e-5)
    if ":" in query:
        assert said["distance"] is None
        return
    y, x = np.divmod(np.arange(35), 7)
    away = np.hypot(y - (slot - 2) // 7, x - (slot - 2) % 7)
    distance = (expected[..., 2:] * away).sum(-1) / expected[..., 2:].sum(-1)
    np.testing.assert_allclose(said["distance"], distance, atol=1e-5)


def test_a_field_is_what_the_encoding_lets_be_seen(server):
    view = server.view(size=list(SIZE)).json["view"]
    said = server.get(f"/api/views/{view}/field?query=17").json
    visible = array(said["visible"], "u1", said["layers"], said["heads"], *GRID)
    up = server.get("/api/session").json["models"][0]["directions"]["up"]
    for layer, head in up:
        # Row 2, column 3 sees a cone upwards.
        assert visible[layer, head].tolist() == [
            [0, 1, 1, 1, 1, 1, 0],
            [0, 0, 1, 1, 1, 0, 0],
            [0, 0, 0, 1, 0, 0, 0],
            [0, 0, 0, 0, 0, 0, 0],
            [0, 0, 0, 0, 0, 0, 0],
        ]
    other = server.view(size=list(SIZE), model=1).json["view"]
    said = server.get(f"/api/views/{other}/field?query=17").json
    assert array(said["visible"], "u1", said["layers"], said["heads"], *GRID).all()


def test_overlays_are_of_the_layer_that_is_asked_for(server):
    model, image = shown(server)
    outputs = model.forward_intermediates(image, intermediates_only=True, output_fmt="NLC")
    view = server.view(size=list(SIZE)).json["view"]
    for layer in range(2):
        norms = server.get(f"/api/views/{view}/overlay?kind=norms&layer={layer}").json
        expected = outputs[layer][0].norm(dim=-1).detach().numpy()
        np.testing.assert_allclose(array(norms["values"], "<f4", 35), expected, rtol=1e-5)
        said = server.get(f"/api/views/{view}/overlay?kind=lens&layer={layer}").json
        assert said["layer"] == layer
        with torch.inference_mode():
            best = lens(model, outputs[layer], model.cut(image)[1].patches_only())[0].softmax(-1).max(-1)
        index = array(said["index"], "<i4", 35)
        assert [said["names"][one] for one in index] == [f"class {one}" for one in best.indices.tolist()]
        np.testing.assert_allclose(array(said["probability"], "<f4", 35), best.values.numpy(), atol=1e-5)
        colours = array(
            server.get(f"/api/views/{view}/overlay?kind=colours&layer={layer}").json["colours"], "u1", 35, 3
        )
        # Each component is stretched over all of its range.
        assert colours.min(0).tolist() == [0, 0, 0]
        assert colours.max(0).tolist() == [255, 255, 255]


@pytest.mark.parametrize(("query", "layer"), [("9", 1), ("9", 0), ("prefix:0", 1), ("prefix:1", 1)])
def test_rollout_is_a_row_of_the_product(server, query, layer):
    model, image = shown(server)
    calls = []
    with record_attention(calls.append), torch.inference_mode():
        model(image)
    product = torch.eye(37)
    for call in calls[: layer + 1]:
        segment = call.keys.segments[0]
        bias = call.pattern.bias(segment, segment, 2, 2)[0]
        scores = call.q[0] @ call.k[0].transpose(-1, -2) * call.q.shape[-1] ** -0.5 + bias
        product = (scores.softmax(-1).mean(0) + torch.eye(37)) / 2 @ product
    slot = int(query.removeprefix("prefix:")) + (0 if ":" in query else 2)
    view = server.view(size=list(SIZE)).json["view"]
    said = server.get(f"/api/views/{view}/overlay?kind=rollout&layer={layer}&query={query}").json
    np.testing.assert_allclose(array(said["values"], "<f4", 35), product[slot, 2:].numpy(), atol=1e-6)


def test_heads_that_are_off_and_the_answer_beside(server):
    off = [[0, 0], [1, 3], [0, 0]]
    said = server.view(size=list(SIZE), off=off).json
    model, image = shown(server)
    with torch.inference_mode():
        whole = top(model(image)[0])
        with switched_off(model, [(0, 0), (1, 3)]):
            best = top(model(image)[0])
    assert [one["probability"] for one in said["classes"]] == pytest.approx(best.values.tolist(), abs=1e-5)
    assert [one["probability"] for one in said["whole"]] == pytest.approx(whole.values.tolist(), abs=1e-5)
    assert said["classes"] != said["whole"]


def test_a_knob_is_turned_for_one_view_alone(server):
    plain = server.view(size=list(SIZE)).json
    turned = server.view(size=list(SIZE), knob=0.25).json
    assert turned["classes"] != plain["classes"]
    maps = [server.get(f"/api/views/{one['view']}/attention?query=3").json["maps"] for one in (plain, turned)]
    assert maps[0] != maps[1]
    # Nothing was left turned.
    model = server.explorer.subjects[0].model
    assert model.knob.value == model.knob.default
    again = server.view(size=list(SIZE)).json
    assert again["classes"] == plain["classes"]
    assert server.get("/api/session").json["models"][0]["knob"]["value"] == model.knob.default


def test_an_image_that_was_sent(server):
    sent = server.send(png(40, 24, seed=3), "my%20cat.png")
    assert sent.status == 201
    assert (sent.json["name"], sent.json["height"], sent.json["width"]) == ("my cat.png", 40, 24)
    assert sent.json in server.get("/api/session").json["images"]
    said = server.view(image=sent.json["id"], size="native").json
    assert said["image_size"] == [40, 24]
    small = server.get(f"/api/images/{sent.json['id']}/thumbnail.png")
    assert small.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(small.content)).size == (24, 40)
    large = server.send(png(400, 240, seed=3))
    small = server.get(f"/api/images/{large.json['id']}/thumbnail.png")
    assert Image.open(io.BytesIO(small.content)).size == (96, 160)


def test_a_model_is_left_as_it_was():
    model = build("lookhere_90")
    image = torch.randn(1, 3, 24, 32)
    with torch.inference_mode():
        before = model(image)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    with serving(model) as server:
        view = server.view(knob=0.3, off=[[0, 1]]).json["view"]
        for kind in server.explorer.said[0]["overlays"]:
            assert server.get(f"/api/views/{view}/overlay?kind={kind}&layer=1&query=3").status == 200, kind
        for part in ("attention", "field"):
            assert server.get(f"/api/views/{view}/{part}?query=3").status == 200
        assert server.view(off=[[9, 9]]).status == 400
    with torch.inference_mode():
        assert torch.equal(model(image), before)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert not model.training
    assert all(not module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("head", ["linear_map", "eomt", "fcos"])
def test_a_model_with_a_head_of_all_tokens(head):
    """It has no classes for an image; its layers are looked into as others."""
    model = build("lookhere_90", head=head, head_options={"queries": 3, "blocks": 1} if head == "eomt" else {})
    with serving(model) as server:
        (said,) = server.get("/api/session").json["models"]
        assert said["classes"] == 0
        assert "lens" not in said["overlays"]
        view = server.view().json
        assert view["classes"] == []
        for part in (
            "attention?query=3",
            "field?query=3",
            *(f"overlay?kind={kind}&query=3" for kind in said["overlays"]),
        ):
            assert server.get(f"/api/views/{view['view']}/{part}").status == 200
