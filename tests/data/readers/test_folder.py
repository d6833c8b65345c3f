"""Folders of class folders."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from coterie.data.load import load
from coterie.data.readers import folder
from tests.data.test_load import fails


def picture(path: Path, value: int = 0, size: tuple[int, int] = (6, 5), mode: str = "RGB") -> Path:
    """One plain image; `size` is (width, height)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode in "L1" or mode == "I;16" else (value, 0, 0)).save(path)
    return path


@pytest.fixture
def photos(tmp_path):
    for i, name in enumerate(["dog/b.png", "dog/a.png", "cat/deep/c.png", "cat/d.bmp"]):
        picture(tmp_path / "photos" / name, value=i)
    return tmp_path / "photos"


def test_folders_are_classes_in_the_order_of_their_names(photos):
    data = load(photos)
    assert (data.name, data.classes, data.y.tolist()) == ("photos", ("cat", "dog"), [0, 0, 1, 1])
    assert (data.shape, data.x.dtype) == ((3, 5, 6), torch.uint8)
    assert data.x[:, 0, 0, 0].tolist() == [3, 2, 1, 0]  # d.bmp, deep/c.png; a.png, b.png


def test_train_and_test_folders_are_honoured(tmp_path):
    for part, name in [("train", "cat"), ("train", "dog"), ("test", "dog")]:
        picture(tmp_path / part / name / "1.png")
    data = load(tmp_path)
    assert data.y_test is not None
    assert (data.classes, data.y.tolist(), data.y_test.tolist()) == (("cat", "dog"), [0, 1], [1])


def test_a_class_that_is_only_tested_is_refused(tmp_path):
    picture(tmp_path / "train" / "cat" / "1.png")
    picture(tmp_path / "test" / "Cat" / "1.png")
    fails("D019", tmp_path)


def test_gray_images_have_one_channel_and_one_colour_image_makes_three(photos, tmp_path):
    picture(tmp_path / "gray" / "a" / "1.png", 7, mode="L")
    picture(tmp_path / "gray" / "b" / "1.png", 9, mode="L")
    assert load(tmp_path / "gray").shape == (1, 5, 6)
    picture(tmp_path / "gray" / "b" / "2.png")
    assert load(tmp_path / "gray").shape == (3, 5, 6)
    assert load(tmp_path / "gray", gray=True).shape == (1, 5, 6)


def test_other_files_are_passed_over(photos):
    (photos / "cat" / "notes.txt").write_text("x")
    (photos / "cat" / ".hidden.png").write_text("x")
    (photos / ".git").mkdir()
    (photos / "README").write_text("x")
    assert len(load(photos).y) == 4


def test_an_image_of_another_size_is_named_with_the_way_out(photos):
    odd = picture(photos / "dog" / "z.png", size=(9, 4))
    error = fails("D016", photos)
    assert error.where == str(odd)
    assert "data.size=4 (in Python: size=4)" in error.fix


@pytest.mark.parametrize(
    ("size", "shape"), [(4, (3, 4, 4)), ((3, 8), (3, 3, 8)), ([3, 8], (3, 3, 8))]
)
def test_images_are_resized_when_asked(photos, size, shape):
    picture(photos / "dog" / "z.png", size=(9, 4))
    assert load(photos, size=size).shape == shape


@pytest.mark.parametrize("size", [0, -3, (2, 3, 4), "big", 10**6])
def test_a_size_that_cannot_be_meant_is_refused(photos, size):
    fails("D004", photos, size=size)


@pytest.mark.row(23, counts="damaged data")
def test_a_truncated_image_is_named(photos):
    noise = np.random.default_rng(0).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    path = photos / "cat" / "broken.png"
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[:-40])
    assert fails("D015", photos).where == str(path)


@pytest.mark.row(23, counts="damaged data")
def test_a_file_that_is_no_image_is_named(photos):
    (photos / "cat" / "fake.png").write_text("hello")
    assert "fake.png" in fails("D015", photos).where


@pytest.mark.parametrize("kind", ["PCX", "TGA", "EPS"])
def test_an_unusual_format_under_a_usual_name_is_not_opened(photos, kind):
    Image.new("RGB", (6, 5)).save(photos / "cat" / "evil.png", kind)
    assert "cannot identify" in fails("D015", photos).why


def bomb(width: int, height: int) -> bytes:
    """A PNG that declares any size in a few bytes."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(10**4, 10**4), (10**6, 10**6)])
@pytest.mark.row(23, counts="damaged data")
def test_a_pixel_bomb_is_refused_by_its_declared_size(photos, size):
    (photos / "cat" / "bomb.png").write_bytes(bomb(*size))
    error = fails("D015", photos)
    assert "bomb.png" in error.where


@pytest.mark.row(23, counts="damaged data")
def test_so_many_pixels_are_decoded_and_no_more(photos, monkeypatch):
    monkeypatch.setattr(folder, "PIXELS", 30)
    load(photos)
    monkeypatch.setattr(folder, "PIXELS", 29)
    fails("D015", photos)


def test_sixteen_bits_per_channel_are_not_silently_cut(tmp_path):
    picture(tmp_path / "a" / "1.png", 3000, mode="I;16")
    assert "8 bits" in fails("D015", tmp_path).why


def test_an_empty_class_is_named(photos):
    (photos / "empty").mkdir()
    assert "empty" in str(fails("D010", photos))


@pytest.mark.parametrize("kind", ["file", "class"])
@pytest.mark.row(27, counts="hostile files and names")
def test_a_link_out_of_the_folder_is_not_followed(photos, tmp_path, kind):
    secret = picture(tmp_path / "private" / "secret.png")
    if kind == "file":
        (photos / "cat" / "link.png").symlink_to("../../private/secret.png")
    else:
        (photos / "link").symlink_to(secret.parent)
    assert "link" in fails("D017", photos).where


def test_a_link_inside_the_folder_is_followed(photos):
    (photos / "dog" / "link.png").symlink_to(photos / "cat" / "d.bmp")
    assert len(load(photos).y) == 5


def test_the_folder_itself_may_be_a_link(photos, tmp_path):
    (tmp_path / "link").symlink_to(photos)
    assert load(tmp_path / "link").fingerprint == load(photos).fingerprint


def test_an_empty_folder_is_of_no_kind(tmp_path):
    fails("D003", tmp_path)
