/* Driver of the core, and the steps of a network that the CPU computes. No function allocates. */

#ifndef TILEWRIGHT_H
#define TILEWRIGHT_H

#include <stddef.h>
#include <stdint.h>

/* Results of functions: 0, an error of the core (TILEWRIGHT_ERROR_...), or one of these. */
enum {
    TILEWRIGHT_OK = 0,
    TILEWRIGHT_NO_CORE = 16,      /* the registers are not those of a core */
    TILEWRIGHT_OTHER_VERSION,     /* the core is of another version of the contract */
    TILEWRIGHT_OTHER_MACHINE,     /* the core has another configuration than the network */
    TILEWRIGHT_BAD_ADDRESS,       /* memory is not at a page, or not within the core's reach */
    TILEWRIGHT_TIMED_OUT,         /* the core did not end */
    TILEWRIGHT_BAD_INDEX          /* an input is an index out of the range of its table */
};

/* A program in memory, and the data window that it works on. */
struct tilewright_program {
    uint32_t place, bytes, data_place, data_bytes;
};

/* An activation int8[N, H, W, C] in memory: its first byte, its extents with padding and without,
   the row and column where it begins inside its border, the border's value, bytes per step. */
struct tilewright_tensor {
    uint32_t place, stored[4], shape[4], corner[2];
    int8_t fill;
    uint32_t strides[4];
};

/* Check the core, and that it reaches the memory. */
int tilewright_identify(uint32_t configuration, uint32_t address_bits, uint32_t memory_bytes);

/* Fill memory with zeros, or with bytes. */
void tilewright_clear(uint32_t place, uint32_t bytes);
void tilewright_load(uint32_t place, const uint8_t *source, uint32_t bytes);

/* Run a program to its end, after the one that clears the scratchpads. */
int tilewright_run(const struct tilewright_program *clearing,
                   const struct tilewright_program *program);

/* Write an activation with its padding, or read it without. */
void tilewright_put(const struct tilewright_tensor *tensor, const int8_t *values);
void tilewright_get(const struct tilewright_tensor *tensor, int8_t *values);

/* Host steps; `count` is the number of elements. */
void tilewright_copy(void *target, const void *source, size_t bytes);
void tilewright_quantize(int8_t *target, const float *source, size_t count, float scale,
                         int zero_point);
void tilewright_dequantize(float *target, const int8_t *source, size_t count, float scale,
                           int zero_point);
void tilewright_round(float *target, const float *source, size_t count);
void tilewright_sigmoid(float *target, const float *source, size_t count);
void tilewright_shift(void *target, const void *source, size_t count);
void tilewright_transpose(void *target, const void *source, size_t element_bytes, size_t rank,
                          const uint32_t *extents, const uint32_t *steps);
void tilewright_softmax(float *target, const float *source, size_t rows, size_t columns);
void tilewright_argmax(int64_t *target, const float *source, size_t rows, size_t columns);
int tilewright_gather(void *target, const void *table, int64_t index, size_t place, size_t count,
                      size_t parts, size_t entries, size_t entry_bytes);

#endif
