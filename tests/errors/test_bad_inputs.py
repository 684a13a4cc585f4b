"""Inputs that the network does not take: one line and exit code 1."""

import numpy as np


def test_an_input_of_the_wrong_shape(fail, model, tmp_path):
    path = tmp_path / "large.npz"
    np.savez(path, inputs=np.zeros((3, 1, 9, 8), np.float32))
    assert fail("run", model, "--config", "8x8", "--input", path) == (
        1,
        f"error: input file `{path}`: `inputs`: expected float32[samples, 1, 8, 8] for input "
        "`scan`, got float32[3, 1, 9, 8]; convert it",
    )


def test_an_input_of_the_wrong_type(fail, model, tmp_path):
    path = tmp_path / "bytes.npy"
    np.save(path, np.zeros((3, 1, 8, 8), np.uint8))
    assert fail("run", model, "--config", "8x8", "--input", path) == (
        1,
        f"error: input file `{path}`: `inputs`: expected float32[samples, 1, 8, 8] for input "
        "`scan`, got uint8[3, 1, 8, 8]; convert it",
    )


def test_floats_beyond_the_type_of_the_input(fail, model, tmp_path):
    path = tmp_path / "large.npy"
    np.save(path, np.full((3, 1, 8, 8), 1e39))
    assert fail("run", model, "--config", "8x8", "--input", path) == (
        1,
        f"error: input file `{path}`: `inputs`: expected values within float32, got 1e+39; scale "
        "them as the network expects",
    )


def test_an_input_file_without_inputs(fail, model, tmp_path):
    path = tmp_path / "other.npz"
    np.savez(path, images=np.zeros((3, 1, 8, 8), np.float32))
    assert fail("run", model, "--config", "8x8", "--input", path) == (
        1,
        f"error: input file `{path}`: expected an array `inputs` or `scan`, got `images`; save it "
        "with `numpy.savez`",
    )


def test_labels_that_do_not_belong_to_the_inputs(fail, model, tmp_path):
    path = tmp_path / "mixed.npz"
    np.savez(path, inputs=np.zeros((3, 1, 8, 8), np.float32), labels=np.zeros(4, np.int64))
    assert fail("run", model, "--config", "8x8", "--input", path) == (
        1,
        f"error: input file `{path}`: expected as many rows in each array, at least one, got 3 of "
        "`scan`, 4 of `labels`; correct the file",
    )


def test_an_input_file_that_is_no_numpy_file(fail, model, tmp_path):
    path = tmp_path / "text.npz"
    path.write_text("hello")
    assert fail("run", model, "--config", "8x8", "--input", path) == (
        1,
        f"error: input file `{path}`: expected NumPy's `.npz` or `.npy` without objects, got "
        "another file or a damaged one; save it with `numpy.savez`",
    )


def test_an_input_file_whose_shape_has_a_truth_value(fail, model, tmp_path):
    path = tmp_path / "true.npy"
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (True,8), }\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + bytes(32))
    code, said = fail("run", model, "--config", "8x8", "--input", path)
    assert code == 1
    assert "expected NumPy's `.npz` or `.npy` without objects" in said


def test_an_input_file_that_is_not_there(fail, model, tmp_path):
    path = tmp_path / "absent.npz"
    assert fail("run", model, "--config", "8x8", "--input", path) == (
        1,
        f"error: input file `{path}`: expected a readable file, got `No such file or directory`; "
        "check the path",
    )
