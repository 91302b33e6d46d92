"""Players as people think of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from skimage import data

from dasp import ExactShapley
from dasp.errors import BadInput
from dasp.players import blocks, channels, named, prefixes, superpixels, windows, without


@pytest.mark.parametrize(
    ("mask", "wanted"),
    [
        (blocks((5, 7), 2), lambda y, x: (y // 2) * 4 + x // 2),
        (blocks((3, 5, 7), (2, 3)), lambda c, y, x: (y // 2) * 3 + x // 3),
        (blocks((3, 5, 7), 2, by_channel=True), lambda c, y, x: c * 12 + (y // 2) * 4 + x // 2),
        (blocks((2, 4, 4, 4), 2), lambda c, z, y, x: (z // 2) * 4 + (y // 2) * 2 + x // 2),
        (windows((3, 10), 4), lambda c, t: t // 4),
        (windows((10, 3), 4, time=0), lambda t, c: t // 4),
        (windows((10, 3), 4, time=0, by_channel=True), lambda t, c: t // 4 * 3 + c),
        (windows((10,), 3), lambda t: t // 3),
        (channels((3, 10)), lambda c, t: c),
        (channels((10, 3), dim=1), lambda t, c: c),
    ],
)  # fmt: skip
def test_grids_number_their_parts(mask, wanted):
    for place in np.ndindex(*mask.shape):
        assert mask[place] == wanted(*place)


def test_sizes_and_shapes_are_whole_numbers_of_any_type():
    mask = blocks((1, 8, 8), 4)
    for shape in ((1, 8, 8), np.array((1, 8, 8)), torch.tensor((1, 8, 8)), torch.Size((1, 8, 8))):
        for size in (np.int64(4), np.array((4, 4)), torch.tensor(4), [np.int32(4), 4]):
            assert torch.equal(blocks(shape, size), mask)
    assert torch.equal(windows(np.array((2, 5)), np.int64(2)), windows((2, 5), 2))
    photo = torch.tensor(data.astronaut()[::16, ::16]).permute(2, 0, 1)
    assert torch.equal(superpixels(photo, np.int64(6)), superpixels(photo, 6))


def test_superpixels_of_a_photo():
    photo = torch.tensor(data.astronaut()[::4, ::4]).permute(2, 0, 1)
    mask = superpixels(photo, 60)
    assert mask.shape == photo.shape
    assert 54 <= mask.max() + 1 <= 66
    assert torch.equal(mask.unique(), torch.arange(mask.max() + 1))
    assert torch.equal(mask[0], mask[2])
    # The colour varies less within regions than within squares of the same number.
    pixels = photo.double().mean(0)
    squares = blocks(pixels.shape, 16)

    def spread(mask):
        return sum(pixels[mask == i].var(correction=0) * (mask == i).sum() for i in range(int(mask.max()) + 1))

    assert spread(mask[0]) < 0.8 * spread(squares)
    apart = superpixels(photo, 60, by_channel=True)
    assert apart.max() + 1 == 3 * (mask.max() + 1)
    grey = superpixels(pixels[None], 60)  # the same compactness means the same for greys
    assert spread(grey[0]) < 0.8 * spread(squares)


def test_superpixels_do_not_depend_on_the_scale_of_numbers():
    photo = torch.tensor(data.astronaut()[::8, ::8]).permute(2, 0, 1)
    normalised = (photo / 255 - 0.45) / 0.22
    both = superpixels(torch.stack([photo / 255, normalised]), 20)
    assert both.shape == (2, *photo.shape)
    assert (both[0] == both[1]).float().mean() > 0.99


def test_images_without_their_players():
    image = torch.rand(3, 20, 30, dtype=torch.float64)
    mean = without(image, "mean")
    torch.testing.assert_close(mean[1, 0, 0], image[1].mean())
    torch.testing.assert_close(without(image, (0.1, 0.2, 0.3))[:, 3, 4], torch.tensor([0.1, 0.2, 0.3]).double())
    assert torch.equal(without(image, 0.5), torch.full_like(image, 0.5))
    wanted = np.stack([gaussian_filter(channel, 3, mode="nearest", truncate=3) for channel in image.numpy()])
    torch.testing.assert_close(without(image, "blur:3"), torch.tensor(wanted))
    rows = torch.stack([image, image.flip(2)])
    torch.testing.assert_close(without(rows)[1].flip(2), without(image, "blur:2"))


def test_masks_are_what_estimators_take():
    series = torch.randn(2, 3, 10, dtype=torch.float64)

    def model(x):
        return (x[:, 0] * x[:, 1]).sum(1) + x[:, 2, :4].prod(1)

    values = ExactShapley(model).attribute(series, feature_mask=windows((3, 10), 4)[None])
    alone = (series[:, 0, 4:8] * series[:, 1, 4:8]).sum(1)  # no other window has to do with this one
    torch.testing.assert_close(values[:, 0, 4], alone)


def test_columns_that_begin_alike():
    mask, names = prefixes(["a_x", "n", "a_b_x", "a_y", "a_b_y"], ["a", "a_b"])
    assert (mask.tolist(), names) == ([0, 1, 2, 0, 2], ["a", "n", "a_b"])


@pytest.mark.parametrize(
    ("text", "mask"),
    [
        ("block:2", blocks((3, 8, 10), 2)),
        ("block:2x5", blocks((3, 8, 10), (2, 5))),
        (" Block:4,channel ", blocks((3, 8, 10), 4, by_channel=True)),
        ("window:3", windows((3, 8, 10), 3)),
        ("window:3,channel,dim=1", windows((3, 8, 10), 3, time=1, by_channel=True)),
        ("channel", channels((3, 8, 10))),
        ("channel,dim=-1", channels((3, 8, 10), dim=-1)),
    ],
)  # fmt: skip
def test_players_by_name(text, mask):
    assert torch.equal(named(text)(torch.zeros(5, 3, 8, 10)), mask[None])


def test_every_image_has_superpixels_of_its_own():
    photo = torch.tensor(data.astronaut()[::8, ::8]).permute(2, 0, 1)
    images = torch.stack([photo, photo.flip(2)])
    assert torch.equal(named("superpixel:6")(images), superpixels(images, 6))


@pytest.mark.parametrize(
    "text", ["", "block", "block:0", "block:2,dim=1", "window:2x2", "channel:2", "pixel", "block:-2"]
)
def test_names_of_no_players_are_refused(text):
    with pytest.raises(BadInput):
        named(text)(torch.zeros(5, 3, 8, 10))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: blocks((3,), 2), "is no image"),
        (lambda: blocks((3, 4, 4), 0), "a whole number from 1 on"),
        (lambda: blocks((3, 4, 4), (2, 2, 2)), "has 3 numbers"),
        (lambda: blocks((0, 4), 2), "is no shape of a row"),
        (lambda: blocks((3, 4, 4), True), "a whole number from 1 on"),
        (lambda: blocks((16, 16, 3), 8), r"image.permute\(2, 0, 1\)"),
        (lambda: windows((3, 4), 2.5), "a whole number from 1 on"),
        (lambda: windows((3, 4), 2, time=2), "has 2 dimensions"),
        (lambda: channels((3, 4), dim=-3), "has 2 dimensions"),
        (lambda: superpixels(torch.rand(8, 8, 3), 4), r"image.permute\(2, 0, 1\)"),
        (lambda: superpixels(torch.rand(3, 8, 8), 1), "from 2 on"),
        (lambda: superpixels(torch.full((3, 8, 8), torch.nan), 4), "NaN"),
        (lambda: superpixels(torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(0)), 6), "only one region"),
        (lambda: without(torch.rand(3, 8, 8), "noise"), "'noise'"),
        (lambda: without(torch.rand(3, 8, 8), "blur:-1"), "'blur:-1'"),
        (lambda: without(torch.rand(3, 8, 8), (1, 2)), "each of the 3 channels"),
        (lambda: without(torch.rand(8, 8)), "is needed"),
        (lambda: prefixes(["a", "a", "city_x"], ["city"]), "2 columns are called 'a'"),
        (lambda: prefixes(["a_x"], "a"), "a list of texts"),
        (lambda: prefixes(["a_x"], ["b"]), "no column begins with 'b_'"),
        (lambda: prefixes(["a_x", "a"], ["a"]), "consists of others"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(BadInput, match=message):
        call()
