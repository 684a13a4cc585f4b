"""Multipliers whose products are free, so that proofs need not multiply."""

from types import ModuleType

import pytest
from amaranth.hdl import Module

from tilewright.hardware.multiplier import Multiplier

from .bench import ProofBench


def free_products(
    bench: ProofBench, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> list[Multiplier]:
    """Give any product to all multipliers of a module; return a list that they will be in."""
    found: list[Multiplier] = []

    class AnyMultiplier(Multiplier):
        def __init__(self, left, right, *, in_fabric: bool = False) -> None:
            super().__init__(left, right, in_fabric=in_fabric)
            found.append(self)

        def elaborate(self, platform) -> Module:
            m = Module()
            m.d.comb += self.product.eq(bench.any(m, "arbitrary", self.product.shape()))
            return m

    monkeypatch.setattr(module, "Multiplier", AnyMultiplier)
    return found
