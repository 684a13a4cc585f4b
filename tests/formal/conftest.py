"""A prover for each test; it writes its files and waveforms into the test's own folder."""

from pathlib import Path

import pytest

from .bench import ProofBench, ProofError
from .prove import REACHABILITY, Method, Verdict, decide


class Prover:
    """Decide benches, and fail with a sentence when a verdict is not the expected one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = 0

    def _decide(self, bench: ProofBench, method: Method) -> Verdict:
        self.runs += 1
        name = f"{self.runs}_{type(bench).__name__}"
        outcome = decide(bench, self.folder / name, method)
        print(f"{name}: {outcome}")
        return outcome

    def proves(self, bench: ProofBench, method: Method = REACHABILITY) -> None:
        """Expect that all claims hold, within the reach of the method."""
        outcome = self._decide(bench, method)
        if outcome.status != "PASS":
            raise ProofError(str(outcome))

    def refutes(self, bench: ProofBench, words: str, method: Method = REACHABILITY) -> None:
        """Expect a counterexample to the claim with this text: the proof can fail."""
        outcome = self._decide(bench, method)
        if outcome.status != "FAIL":
            raise ProofError(f"expected a counterexample to `{words}`, got {outcome}")
        if words not in outcome.claim or outcome.trace is None or not outcome.trace.is_file():
            raise ProofError(f"expected a trace that breaks `{words}`, got {outcome}")

    def reaches(self, bench: ProofBench, words: str, method: Method = REACHABILITY) -> None:
        """Expect that the bench's goal can be reached: the assumptions leave room for it."""
        bench.reaching = True
        self.refutes(bench, words, method)


@pytest.fixture
def prover(tmp_path: Path) -> Prover:
    """Prover whose evidence stays in the test's folder."""
    return Prover(tmp_path)
