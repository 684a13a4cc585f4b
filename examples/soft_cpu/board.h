/* Addresses of the soft CPU, as `hardware/soc/soft_cpu.py` decodes them. */

#ifndef BOARD_H
#define BOARD_H

#define TILEWRIGHT_REGISTERS 0x40000000u
#define TILEWRIGHT_MEMORY 0x80000000u
#define TILEWRIGHT_OFFSET (0u - TILEWRIGHT_MEMORY) /* the core's addresses begin at 0 */

/* A read takes a byte of the link, and waits for it; a write sends one. */
#define BOARD_LINK (*(volatile unsigned char *)0xC0000000u)

#endif
