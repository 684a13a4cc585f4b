
# Project
set board_part [lindex [lsort [get_board_parts -quiet -latest_file_version $board_files]] end]
if {$board_part eq ""} {
    error "no board files match `$board_files`: install those of $name in Vivado's store of boards"
}
create_project -force -part $part $name $project
set_property board_part $board_part [current_project]
add_files -norecurse [list [file join $here core.v] [file join $here tilewright.v]]
update_compile_order -fileset sources_1

# Block design: the processors `ps`, the accelerator `core`, an interconnect for each of its ports
create_bd_design system
create_bd_cell -type ip -vlnv $ps_ip ps
apply_bd_automation -rule $ps_rule -config $ps_automation [get_bd_cells ps]
set_property -dict $ps_settings [get_bd_cells ps]
create_bd_cell -type module -reference tilewright core
create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset reset
foreach cell {registers memory} {
    create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect $cell
    set_property -dict {CONFIG.NUM_SI 1 CONFIG.NUM_MI 1} [get_bd_cells $cell]
}

set clocked {core/clk reset/slowest_sync_clk registers/aclk memory/aclk}
foreach pin $ps_clock_inputs {
    lappend clocked ps/$pin
}
foreach pin $clocked {
    connect_bd_net [get_bd_pins ps/$ps_clock] [get_bd_pins $pin]
}
connect_bd_net [get_bd_pins ps/$ps_reset] [get_bd_pins reset/ext_reset_in]
connect_bd_net [get_bd_pins reset/peripheral_reset] [get_bd_pins core/rst]
foreach cell {registers memory} {
    connect_bd_net [get_bd_pins reset/interconnect_aresetn] [get_bd_pins $cell/aresetn]
}
connect_bd_net [get_bd_pins core/interrupt] [get_bd_pins ps/$ps_interrupt]
foreach {master slave} [list \
    ps/$ps_registers_port registers/S00_AXI   registers/M00_AXI core/s_axi \
    core/m_axi memory/S00_AXI                 memory/M00_AXI ps/$ps_memory_port \
] {
    connect_bd_intf_net [get_bd_intf_pins $master] [get_bd_intf_pins $slave]
}

assign_bd_address -offset $registers_base -range 4K \
    -target_address_space [get_bd_addr_spaces ps/Data] [get_bd_addr_segs core/s_axi/reg0]
assign_bd_address
finish_block_design

implement "lower `--clock`"

# Hand-off files; pynq needs the bitstream and the first of them under one name.
set handoff [glob -directory $project *.{gen,srcs}/sources_1/bd/system/hw_handoff/system.hwh]
file copy -force [lindex $handoff 0] [file join $here $name.hwh]
write_hw_platform -fixed -include_bit -force [file join $here $name.xsa]
puts "$name.bit, $name.hwh and $name.xsa are in $here"
