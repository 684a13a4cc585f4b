
# The rest is the same for all boards. Results lie beside this file.
set here [file dirname [file normalize [info script]]]

read_verilog [file join $here top.v]
read_xdc [file join $here pins.xdc]
synth_design -top top -part $part
opt_design
place_design
phys_opt_design
route_design
report_utilization -file [file join $here utilization.rpt]
report_timing_summary -file [file join $here timing.rpt]

# No bitstream without timing
foreach {kind check} {max setup min hold} {
    set paths [get_timing_paths -delay_type $kind]
    set slack [get_property SLACK [lindex $paths 0]]
    if {$slack eq "" || $slack < 0} {
        error "timing at $clock_mhz MHz: worst $check slack is `$slack` ns, expected 0 or more;\
            write the project again with a lower `--clock`"
    }
}
write_bitstream -force [file join $here $name.bit]
puts "$name.bit is in $here"
