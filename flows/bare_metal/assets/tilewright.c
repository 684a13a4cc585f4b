/* Driver of the core: identification, memory, runs. */

#include "tilewright.h"

#include "tilewright_platform.h"
#include "tilewright_registers.h"

#define PAGE_BYTES 4096u

static uintptr_t core_address(uint32_t place)
{
    return (uintptr_t)(TILEWRIGHT_MEMORY) + (uintptr_t)(TILEWRIGHT_OFFSET) + place;
}

int tilewright_identify(uint32_t configuration, uint32_t address_bits, uint32_t memory_bytes)
{
    const uint64_t last = (uint64_t)core_address(0) + memory_bytes - 1;

    if (TILEWRIGHT_READ_REGISTER(TILEWRIGHT_ID) != TILEWRIGHT_MAGIC) return TILEWRIGHT_NO_CORE;
    if (TILEWRIGHT_READ_REGISTER(TILEWRIGHT_VERSION) != TILEWRIGHT_CONTRACT_VERSION)
        return TILEWRIGHT_OTHER_VERSION;
    if (TILEWRIGHT_READ_REGISTER(TILEWRIGHT_CONFIGURATION) != configuration)
        return TILEWRIGHT_OTHER_MACHINE;
    if (core_address(0) % PAGE_BYTES || last >> address_bits) return TILEWRIGHT_BAD_ADDRESS;
    return TILEWRIGHT_OK;
}

void tilewright_clear(uint32_t place, uint32_t bytes)
{
    uint32_t index;

    for (index = 0; index < bytes; ++index) TILEWRIGHT_WRITE_MEMORY(place + index, 0);
}

void tilewright_load(uint32_t place, const uint8_t *source, uint32_t bytes)
{
    uint32_t index;

    for (index = 0; index < bytes; ++index) TILEWRIGHT_WRITE_MEMORY(place + index, source[index]);
    TILEWRIGHT_FLUSH(place, bytes);
}

/* Stop the core, and clear its status and queues. */
static int stop(void)
{
    uint32_t polls;

    TILEWRIGHT_WRITE_REGISTER(TILEWRIGHT_CONTROL, TILEWRIGHT_STOP);
    for (polls = 0; polls < TILEWRIGHT_POLLS; ++polls)
        if (!(TILEWRIGHT_READ_REGISTER(TILEWRIGHT_STATUS) & TILEWRIGHT_BUSY)) return TILEWRIGHT_OK;
    return TILEWRIGHT_TIMED_OUT;
}

static int execute(const struct tilewright_program *program)
{
    uint32_t polls, status;

    if (stop() != TILEWRIGHT_OK) return TILEWRIGHT_TIMED_OUT;
    TILEWRIGHT_WRITE_REGISTER(TILEWRIGHT_PROGRAM_BASE, (uint32_t)core_address(program->place));
    TILEWRIGHT_WRITE_REGISTER(TILEWRIGHT_PROGRAM_BYTES, program->bytes);
    TILEWRIGHT_WRITE_REGISTER(TILEWRIGHT_DATA_BASE, (uint32_t)core_address(program->data_place));
    TILEWRIGHT_WRITE_REGISTER(TILEWRIGHT_DATA_BYTES, program->data_bytes);
    TILEWRIGHT_WRITE_REGISTER(TILEWRIGHT_CONTROL, TILEWRIGHT_START);
    for (polls = 0; polls < TILEWRIGHT_POLLS; ++polls) {
        status = TILEWRIGHT_READ_REGISTER(TILEWRIGHT_STATUS);
        if (status & TILEWRIGHT_ERROR) return (int)(status >> 4 & 15);
        if (status & TILEWRIGHT_DONE) return TILEWRIGHT_OK;
    }
    (void)stop();
    return TILEWRIGHT_TIMED_OUT;
}

int tilewright_run(const struct tilewright_program *clearing,
                   const struct tilewright_program *program)
{
    int result;

    TILEWRIGHT_FLUSH(program->data_place, program->data_bytes);
    result = execute(clearing);
    if (result == TILEWRIGHT_OK) result = execute(program);
    TILEWRIGHT_FLUSH(program->data_place, program->data_bytes);
    return result;
}

/* Address of the first byte of the pixel at [n, y, x] of the stored extents. */
static uint32_t pixel(const struct tilewright_tensor *tensor, uint32_t n, uint32_t y, uint32_t x)
{
    const uint32_t *strides = tensor->strides;

    return tensor->place + n * strides[0] + y * strides[1] + x * strides[2];
}

void tilewright_put(const struct tilewright_tensor *tensor, const int8_t *values)
{
    const uint32_t *stored = tensor->stored, *shape = tensor->shape;
    uint32_t n, y, x, c;

    for (n = 0; n < stored[0]; ++n)
        for (y = 0; y < stored[1]; ++y)
            for (x = 0; x < stored[2]; ++x) {
                /* Before the corner, the unsigned differences are huge. */
                const int inside =
                    y - tensor->corner[0] < shape[1] && x - tensor->corner[1] < shape[2];
                uint32_t place = pixel(tensor, n, y, x);

                for (c = 0; c < stored[3]; ++c, place += tensor->strides[3]) {
                    const int value = !inside ? tensor->fill : c < shape[3] ? *values++ : 0;

                    TILEWRIGHT_WRITE_MEMORY(place, (uint8_t)value);
                }
            }
}

void tilewright_get(const struct tilewright_tensor *tensor, int8_t *values)
{
    const uint32_t *shape = tensor->shape;
    uint32_t n, y, x, c;

    for (n = 0; n < shape[0]; ++n)
        for (y = 0; y < shape[1]; ++y)
            for (x = 0; x < shape[2]; ++x) {
                uint32_t place = pixel(tensor, n, y + tensor->corner[0], x + tensor->corner[1]);

                for (c = 0; c < shape[3]; ++c, place += tensor->strides[3])
                    *values++ = (int8_t)TILEWRIGHT_READ_MEMORY(place);
            }
}
