"""Instruction families declare what the compiler needs to know; it asks for nothing by name."""

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from tilewright.errors import IsaError
from tilewright.isa.configuration import DEFAULT, Memory
from tilewright.isa.instructions import (
    FAMILIES,
    Instruction,
    Loop,
    Role,
    fill_memory,
    transfer,
    transfer_problem,
)
from tilewright.isa.patterns import PATTERNS
from tilewright.isa.vector_operations import NAMES

ROOT = Path(__file__).resolve().parents[2]

CODE_GENERATORS = ("accelerator", "te", "kernels")
"""Folders of `compiler/` that make instructions."""

ORDINARY = {"length", "value", "fill", "memory", "local", "loops", "source", "destination"} | {
    "acc", "low", "high", "bias", "scale", "table", "lookup", "reduce", "target", "wait", "signal"
}  # fmt: skip
"""Names of fields that are ordinary words, and mean other things in a compiler."""


def _names_of_families() -> set[str]:
    shared = {field.name for field in fields(Instruction)}
    names = {field.name for family in FAMILIES for field in fields(family)} - shared
    names |= {slot for family in FAMILIES for slot in family.roles}
    return names - ORDINARY - set(NAMES)


def _strings(tree: ast.AST) -> Iterator[ast.Constant]:
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if id(node) in docstrings or not isinstance(node, ast.Constant):
            continue
        if isinstance(node.value, str):
            yield node


@pytest.mark.parametrize("family", FAMILIES)
def test_every_operand_has_a_role(family):
    heads = {slot.split(".")[0] for slot in family.roles}
    assert {operand.name for operand in family.operands} <= heads
    assert heads <= {field.name for field in fields(family)}
    assert family.reduction_nest in ("", *family.nests)
    for name in (family.continue_field, family.lane_group_field):
        assert name in ("", *(field.name for field in fields(family)))


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.family.mnemonic)
def test_every_slot_of_a_law_has_a_role(pattern):
    assert set(pattern.places) == set(pattern.family.roles)


def test_a_role_that_several_operands_have_names_none():
    (vector,) = (family for family in FAMILIES if Role.RESULT in family.roles.values())
    assert vector.operand_of(Role.RESULT) == "dst"
    with pytest.raises(IsaError, match="vector: 2 operands are stream, not one"):
        vector.operand_of(Role.STREAM)


def test_a_transfer_is_the_instruction_of_its_direction():
    loops = (Loop(4, (8, 16)),)
    load = transfer(Memory.DRAM, Memory.WGT, 8, (3, 5), loops)
    store = transfer(Memory.ACC, Memory.DRAM, 8, (3, 5), loops)
    for one in (load, store):
        role = {one.roles[name]: name for name in one.roles}
        assert getattr(one, role[Role.SOURCE]) == 3
        assert getattr(one, role[Role.DESTINATION]) == 5
        assert one.nest_of(role[Role.SOURCE]) == ((4, 8),)
    assert (load.mnemonic, store.mnemonic) == ("load", "store")
    filled = fill_memory(Memory.ACT, 7, 8, 5, loops)
    assert [access.memory for access in filled.accesses(DEFAULT)] == [Memory.ACT]
    with pytest.raises(IsaError) as refusal:
        transfer(Memory.ACT, Memory.WGT, 8, (0, 0))
    assert str(refusal.value) == (
        "no unit moves data from ACT to WGT; LOAD fills ACT, WGT, PARAM and LUT from main memory, "
        "and STORE reads ACT and ACC"
    )
    assert transfer_problem(Memory.ACT, Memory.WGT) == str(refusal.value)


def test_the_compiler_names_no_instruction():
    families = {family.__name__ for family in FAMILIES}
    found = []
    for path in sorted((ROOT / "compiler").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and "isa" in (node.module or "").split("."):
                named = families & {alias.name for alias in node.names}
                found += [f"{path.relative_to(ROOT)}:{node.lineno}: {name}" for name in named]
    assert found == []


def test_the_compiler_names_no_field_of_an_instruction():
    names, found = _names_of_families(), []
    for folder in CODE_GENERATORS:
        for path in sorted((ROOT / "compiler" / folder).rglob("*.py")):
            for node in _strings(ast.parse(path.read_text())):
                if node.value in names:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}")
    assert found == []
