
# Project
set board_part [lindex [lsort [get_board_parts -quiet -latest_file_version $board_files]] end]
if {$board_part eq ""} {
    error "no board files match `$board_files`: install those of $name in Vivado's store of boards"
}
create_project -force -part $part $name $project
set_property board_part $board_part [current_project]
add_files -norecurse [list [file join $here top.v] [file join $here tilewright.v]]
add_files -fileset constrs_1 -norecurse [list [file join $here pins.xdc]]
update_compile_order -fileset sources_1

# Block design: the controller `ddr` as the board's maker describes it, the system, and an
# interconnect between their widths. The controller makes the clock of all, and its own reference.
create_bd_design system
create_bd_cell -type ip -vlnv xilinx.com:ip:mig_7series ddr
apply_board_connection -board_interface $interface -ip_intf ddr/mig_ddr_interface -diagram system
delete_bd_objs -quiet [get_bd_nets -quiet clk_ref_i_1]
delete_bd_objs -quiet [get_bd_ports -quiet clk_ref_i]
create_bd_cell -type module -reference tilewright core
create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset reset
create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect memory
set_property -dict {CONFIG.NUM_SI 1 CONFIG.NUM_MI 1} [get_bd_cells memory]
create_bd_cell -type ip -vlnv xilinx.com:ip:xlconstant high

foreach {source pins} {
    ddr/ui_clk               {core/clk reset/slowest_sync_clk memory/aclk}
    ddr/ui_addn_clk_0        {ddr/clk_ref_i}
    ddr/ui_clk_sync_rst      {reset/ext_reset_in}
    ddr/init_calib_complete  {reset/dcm_locked}
    reset/peripheral_reset   {core/rst}
    reset/peripheral_aresetn {ddr/aresetn}
    reset/interconnect_aresetn {memory/aresetn}
    high/dout                {ddr/sys_rst}
} {
    foreach pin $pins {
        connect_bd_net [get_bd_pins $source] [get_bd_pins $pin]
    }
}
connect_bd_intf_net [get_bd_intf_pins core/m_axi] [get_bd_intf_pins memory/S00_AXI]
connect_bd_intf_net [get_bd_intf_pins memory/M00_AXI] [get_bd_intf_pins ddr/S_AXI]
foreach pin $pins_of_board {
    create_bd_port -dir [get_property DIR [get_bd_pins core/$pin]] $pin
    connect_bd_net [get_bd_pins core/$pin] [get_bd_ports $pin]
}

# The core's addresses begin at the first byte of the memory.
assign_bd_address -offset 0x0 -range $memory_range \
    -target_address_space [get_bd_addr_spaces core/m_axi] [get_bd_addr_segs ddr/memmap/memaddr]
finish_block_design

implement "smaller `--config`"
puts "$name.bit is in $here"
