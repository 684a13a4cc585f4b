"""Rules of AXI4 and AXI4-Lite, checked on every cycle of the core's two ports.

Written against the specification (ARM IHI 0022) alone, apart from the C++ harness's own checks.
"""

from collections import deque

INCR = 1
PAGE_BYTES = 4096


class AxiChecker:
    """Watches one core; `broken` fills with sentences.

    Parameters
    ----------
    dut
        The core.
    configuration
        Gives bus and burst sizes.
    """

    def __init__(self, dut, configuration) -> None:
        self.dut, self.configuration = dut, configuration
        self.broken: list[str] = []
        self.cycle = 0
        self.beats = {"R": 0, "W": 0}
        self._held: dict[str, tuple] = {}
        self._reads: deque[int] = deque()
        self._write_lengths: deque[int] = deque()
        self._write_beats = 0
        self._finished_writes: deque[int] = deque()
        self._responses_due = 0
        self._host = {"AW": 0, "W": 0, "AR": 0}

    def drive(self) -> None:
        """A checker drives nothing."""

    def sample(self) -> None:
        """Look at both ports in the middle of a cycle, all signals settled."""
        dut = self.dut
        self.cycle += 1
        if int(dut.rst.value):
            for name in ("m_axi_arvalid", "m_axi_awvalid", "m_axi_wvalid"):
                if self.cycle > 2 and int(getattr(dut, name).value):
                    self._report(f"{name} is high in reset (IHI 0022, A3.1.2)")
            return
        self._check_channel("m_axi", "ar", ("addr", "len", "size", "burst"))
        self._check_channel("m_axi", "aw", ("addr", "len", "size", "burst"))
        self._check_channel("m_axi", "w", ("data", "strb", "last"))
        self._check_channel("s_axi", "r", ("data", "resp"))
        self._check_channel("s_axi", "b", ("resp",))
        self._check_reads()
        self._check_writes()
        self._check_host()

    def finish(self) -> None:
        """Nothing may be left open when the core is done."""
        if self._reads:
            self._report(f"{len(self._reads)} read bursts are unfinished at the end")
        if self._write_lengths or self._write_beats or self._responses_due:
            self._report("writes are unfinished at the end")
        assert not self.broken, "\n".join(self.broken[:20])

    def _get(self, port: str, name: str) -> int:
        return int(getattr(self.dut, f"{port}_{name}").value)

    def _moves(self, port: str, channel: str) -> bool:
        return bool(self._get(port, f"{channel}valid") and self._get(port, f"{channel}ready"))

    def _check_channel(self, port: str, channel: str, fields: tuple[str, ...]) -> None:
        """VALID stays and the payload keeps still until READY (A3.2.1)."""
        key = port + channel
        valid = self._get(port, f"{channel}valid")
        payload = tuple(self._get(port, channel + name) for name in fields) if valid else None
        held = self._held.pop(key, None)
        if held is not None and payload != held:
            self._report(f"{port} {channel}: changed or dropped before it was accepted")
        if valid and not self._get(port, f"{channel}ready"):
            self._held[key] = payload

    def _check_burst(self, channel: str) -> int:
        address = self._get("m_axi", f"{channel}addr")
        beats = self._get("m_axi", f"{channel}len") + 1
        bus, burst = self.configuration.bus_bytes, self.configuration.burst_bytes
        first = address // bus * bus
        last = first + beats * bus - 1
        if self._get("m_axi", f"{channel}burst") != INCR:
            self._report(f"{channel}: burst is not INCR")
        if 1 << self._get("m_axi", f"{channel}size") != bus:
            self._report(f"{channel}: size is not the bus width")
        if first // PAGE_BYTES != last // PAGE_BYTES:
            self._report(f"{channel}: burst at {address:#x} crosses 4 KiB (A3.4.1)")
        if first // burst != last // burst:
            self._report(f"{channel}: burst at {address:#x} crosses a burst boundary")
        return beats

    def _check_reads(self) -> None:
        if self._moves("m_axi", "r"):
            self.beats["R"] += 1
            self._reads[0] -= 1
            if self._get("m_axi", "rlast"):
                self._reads.popleft()
        if self._moves("m_axi", "ar"):
            self._reads.append(self._check_burst("ar"))

    def _check_writes(self) -> None:
        if self._moves("m_axi", "b"):
            self._responses_due -= 1
        if self._moves("m_axi", "aw"):
            self._write_lengths.append(self._check_burst("aw"))
        if self._moves("m_axi", "w"):
            self.beats["W"] += 1
            self._write_beats += 1
            if self._get("m_axi", "wlast"):
                self._finished_writes.append(self._write_beats)
                self._write_beats = 0
        while self._write_lengths and self._finished_writes:
            expected, got = self._write_lengths.popleft(), self._finished_writes.popleft()
            self._responses_due += 1
            if expected != got:
                self._report(f"W: WLAST after {got} beats of a burst of {expected}")
        if self._write_lengths and self._write_beats >= self._write_lengths[0]:
            self._report(f"W: no WLAST after {self._write_beats} beats")

    def _check_host(self) -> None:
        if self._get("s_axi", "rvalid") and not self._host["AR"]:
            self._report("s_axi r: data without an address")
        if self._get("s_axi", "bvalid") and not (self._host["AW"] and self._host["W"]):
            self._report("s_axi b: response before address and data (A3.3.1)")
        if self._moves("s_axi", "r"):
            self._host["AR"] -= 1
        if self._moves("s_axi", "b"):
            self._host["AW"] -= 1
            self._host["W"] -= 1
        for channel in ("aw", "w", "ar"):
            if self._moves("s_axi", channel):
                self._host[channel.upper()] += 1

    def _report(self, sentence: str) -> None:
        self.broken.append(f"cycle {self.cycle}: {sentence}")
