"""The machine whose netlist is simulated: synthesis takes more than a minute, so tests share one.

Lanes and loops determine the size of the netlist; memories and bursts cost few gates. With those of
`tiny`, a transformer's block would be two programs and take seven times as many cycles.
"""

from tilewright.isa.settings import load_configuration

OPTION = (
    "tiny,row_statistics=all,lut_tables=2,act_depth=512,wgt_depth=256,acc_depth=128,param_depth=32,"
    "burst_beats=16,outstanding_bursts=32,queue_depth=8"
)
"""As `--config` takes it."""

MACHINE = load_configuration(OPTION).replace(name="rows-2x2")
