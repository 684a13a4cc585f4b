
# Project
create_project -force -part $part $name $project
add_files -norecurse [list [file join $here top.v]]
add_files -fileset constrs_1 -norecurse [list [file join $here pins.xdc]]
set_property top top [current_fileset]
update_compile_order -fileset sources_1

implement "lower `--clock`"
puts "$name.bit is in $here"
