
# The rest is the same for all boards. Results lie beside this file.
package require ::quartus::project
package require ::quartus::flow
package require ::quartus::report
set here [file dirname [file normalize [info script]]]
cd $here

project_new -overwrite $name
set_global_assignment -name FAMILY "Cyclone V"
set_global_assignment -name DEVICE $part
set_global_assignment -name TOP_LEVEL_ENTITY top
set_global_assignment -name VERILOG_FILE top.v
set_global_assignment -name SDC_FILE clocks.sdc
set_global_assignment -name PROJECT_OUTPUT_DIRECTORY output
set_global_assignment -name ADD_PASS_THROUGH_LOGIC_TO_INFERRED_RAMS OFF
set_global_assignment -name RESERVE_ALL_UNUSED_PINS_WEAK_PULLUP "AS INPUT TRI-STATED"
source [file join $here pins.tcl]
export_assignments
execute_flow -compile

# No bitstream without timing
load_report
set panel [lsearch -inline [get_report_panel_names] "*Multicorner Timing Analysis Summary"]
set row [get_report_panel_row_index -name $panel "Worst-case Slack"]
foreach check {Setup Hold} {
    lappend slacks [get_report_panel_data -name $panel -row $row -col_name $check] $check
}
unload_report
foreach {found check} $slacks {
    if {![string is double -strict $found] || $found < 0} {
        file delete -force [file join $here output $name.sof]
        error "timing at $clock_mhz MHz: worst $check slack is `$found` ns, expected 0 or more;\
            write the project again with a lower `--clock`"
    }
}
project_close
file copy -force [file join $here output $name.sof] [file join $here $name.sof]
puts "$name.sof is in $here"
