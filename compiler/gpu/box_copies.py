"""Emit copies of boxes into shared memory, one instruction of one thread each, and waits for them.

Source: NVIDIA, PTX ISA 8.5, sections 9.7.8.24, `cp.async.bulk.tensor`, and 9.7.12.15, `mbarrier`.
"""

from collections.abc import Mapping

from ..cpu.codegen.emitter import BIT, I8, I32, I64, LlvmValue
from ..cpu.codegen.environment import Environment
from ..cpu.codegen.lower_values import Values
from .bulk_copies import MBARRIER_BYTES, SLOT_BYTES, BulkCopy
from .emitter import GpuEmitter
from .instructions import WARP_THREADS


class BoxCopies:
    """The copies of boxes of one kernel.

    Parameters
    ----------
    emitter, values
        Emit the code.
    copies
        The copies by the buffers that they fill, each with the address of its map.
    mbarriers
        Address of the mbarriers, one for each slot; None without copies.
    """

    def __init__(
        self,
        emitter: GpuEmitter,
        values: Values,
        copies: Mapping[str, tuple[BulkCopy, LlvmValue]],
        mbarriers: LlvmValue | None,
    ) -> None:
        self.emitter, self.values, self.copies = emitter, values, copies
        self.mbarriers = mbarriers
        self.gathered: list[tuple[str, Environment]] = []
        """Copies of the iteration that is emitted, with their environments."""

    def _mbarrier(self, slot: LlvmValue, is_read: bool = False) -> LlvmValue:
        """The address of a slot's mbarrier: of its copies, or of those who have read them."""
        builder = self.emitter.builder
        offset = builder.mul(slot, I64(SLOT_BYTES))
        place = builder.add(offset, I64(MBARRIER_BYTES if is_read else 0))
        return self._in_shared(builder.gep(self.mbarriers, [place], source_etype=I8))

    def _in_shared(self, pointer: LlvmValue) -> LlvmValue:
        """The address of shared memory as a number."""
        return self.emitter.builder.ptrtoint(self.emitter.in_shared(pointer), I32)

    def initialise(self, slots: int, warps: int, is_first: LlvmValue) -> None:
        """Let one thread make the mbarriers; a barrier has to follow.

        Parameters
        ----------
        warps
            Warps that tell when they have read a slot; 0 if no thread waits for that.
        """
        with self.emitter.builder.if_then(is_first):
            for slot in range(slots):
                for is_read, count in ((False, 1), (True, warps))[: 2 if warps else 1]:
                    self.emitter.assembly(
                        "mbarrier.init.shared::cta.b64 [$0], $1;",
                        [self._mbarrier(I64(slot), is_read), I32(count)],
                    )
            self.emitter.assembly("fence.mbarrier_init.release.cluster;")

    def start(self, slot: LlvmValue, is_first: LlvmValue) -> None:
        """Let one thread start the copies that are gathered."""
        emitter, memory = self.emitter, self.values.memory
        builder = emitter.builder
        with builder.if_then(is_first), memory.scope():
            mbarrier = self._mbarrier(slot)
            size = sum(self.copies[name][0].map.box_bytes for name, _ in self.gathered)
            emitter.assembly(
                "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", [mbarrier, I32(size)]
            )
            for name, env in self.gathered:
                copy, map_ = self.copies[name]
                place = [
                    builder.trunc(memory.number(env.resolved(one)), I32)
                    for one in reversed(copy.origin)
                ]
                numbers = ", ".join(f"${number + 3}" for number in range(len(place)))
                emitter.assembly(
                    f"cp.async.bulk.tensor.{len(place)}d.shared::cluster.global"
                    f".mbarrier::complete_tx::bytes [$0], [$1, {{{numbers}}}], [$2];",
                    [
                        self._in_shared(self.values.areas[name].pointer),
                        builder.ptrtoint(map_, I64),
                        mbarrier,
                        *place,
                    ],
                )
        self.gathered.clear()

    def release(self, slot: LlvmValue, thread: LlvmValue) -> None:
        """Let a warp tell that it has read a slot."""
        builder = self.emitter.builder
        lane = builder.and_(thread, I64(WARP_THREADS - 1))
        with builder.if_then(builder.icmp_unsigned("==", lane, I64(0))):
            self.emitter.assembly(
                "mbarrier.arrive.shared::cta.b64 _, [$0];", [self._mbarrier(slot, True)]
            )

    def wait(self, slot: LlvmValue, turn: LlvmValue, is_read: bool = False) -> None:
        """Wait until the copies of a turn are in a slot, or until those of the one before are read.

        Nobody waits for readers in the first turn.
        """
        builder = self.emitter.builder
        parity = builder.and_(builder.add(turn, I64(int(is_read))), I64(1))
        given = [self._mbarrier(slot, is_read), builder.trunc(parity, I32)]
        tried, there = (builder.append_basic_block(name) for name in ("tried", "there"))
        builder.branch(tried)
        builder.position_at_end(tried)
        test = "mbarrier.try_wait.parity.shared::cta.b64 $0, [$2], $3;"
        (done,) = self.emitter.assembly(test, given, [BIT(0)])
        builder.cbranch(done, there, tried)
        builder.position_at_end(there)
