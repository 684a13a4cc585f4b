/* Access to the registers of the core, and to the memory that it shares with the CPU.

   A board defines these macros in a header of its own, such as `board.h`; `make BOARD=../board.h`
   includes it before everything else. All accesses are volatile, unless the board replaces them. */

#ifndef TILEWRIGHT_PLATFORM_H
#define TILEWRIGHT_PLATFORM_H

#include <stdint.h>

/* The memory of NETWORK_MEMORY_BYTES, as the CPU addresses it; a multiple of 4096 for the core. */
#ifndef TILEWRIGHT_MEMORY
#error "define TILEWRIGHT_MEMORY, the CPU's address of the memory that it shares with the core"
#endif

/* Added to the CPU's address of a byte, it gives the core's address of the same byte. */
#ifndef TILEWRIGHT_OFFSET
#define TILEWRIGHT_OFFSET 0
#endif

/* Accesses of a register, `offset` bytes after the first one. */
#ifndef TILEWRIGHT_READ_REGISTER
#ifndef TILEWRIGHT_REGISTERS
#error "define TILEWRIGHT_REGISTERS, the CPU's address of the core's registers"
#endif
#define TILEWRIGHT_REGISTER(offset) \
    (*(volatile uint32_t *)((uintptr_t)(TILEWRIGHT_REGISTERS) + (offset)))
#define TILEWRIGHT_READ_REGISTER(offset) TILEWRIGHT_REGISTER(offset)
#define TILEWRIGHT_WRITE_REGISTER(offset, value) (TILEWRIGHT_REGISTER(offset) = (value))
#endif

/* Accesses of a byte of the memory, `place` bytes after its first one. */
#ifndef TILEWRIGHT_READ_MEMORY
#define TILEWRIGHT_BYTE(place) (((volatile uint8_t *)(TILEWRIGHT_MEMORY))[place])
#define TILEWRIGHT_READ_MEMORY(place) TILEWRIGHT_BYTE(place)
#define TILEWRIGHT_WRITE_MEMORY(place, byte) (TILEWRIGHT_BYTE(place) = (byte))
#endif

/* Write back and drop what the CPU's caches hold of `bytes` bytes at `place`, with the barriers
   that it takes; called before the core starts and after it has ended. Not needed if the CPU does
   not cache this memory, and keeps the order of its accesses. */
#ifndef TILEWRIGHT_FLUSH
#define TILEWRIGHT_FLUSH(place, bytes) ((void)0)
#endif

/* Reads of STATUS after which a run counts as hanging. */
#ifndef TILEWRIGHT_POLLS
#define TILEWRIGHT_POLLS 100000000u
#endif

#endif
