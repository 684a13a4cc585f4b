
# The rest is the same for all boards. Results lie beside this file.
set here [file dirname [file normalize [info script]]]
set project [file join $here vivado]

# Make the block design the top of the project.
proc finish_block_design {} {
    validate_bd_design
    save_bd_design
    make_wrapper -top -import [get_files system.bd]
    set_property top system_wrapper [current_fileset]
    update_compile_order -fileset sources_1
}

proc finish {run} {
    wait_on_run $run
    if {[get_property PROGRESS [get_runs $run]] ne "100%"} {
        error "$run failed: [get_property STATUS [get_runs $run]]; see its log"
    }
}

# Implement the project, and put its bitstream beside this file; none without timing.
proc implement {remedy} {
    global here name clock_mhz
    launch_runs -jobs 4 impl_1
    finish impl_1
    foreach {statistic check} {STATS.WNS setup STATS.WHS hold} {
        set slack [get_property $statistic [get_runs impl_1]]
        if {$slack eq "" || $slack < 0} {
            error "timing at $clock_mhz MHz: worst $check slack is `$slack` ns, expected 0 or more;\
                write the project again with a $remedy"
        }
    }
    launch_runs -jobs 4 -to_step write_bitstream impl_1
    finish impl_1
    set run [get_property DIRECTORY [get_runs impl_1]]
    set top [get_property top [current_fileset]]
    file copy -force [file join $run $top.bit] [file join $here $name.bit]
}
