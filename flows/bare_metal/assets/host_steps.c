/* The steps of a network that the CPU computes, as the compiler's operators define them. */

#include "tilewright.h"

#define MOST_AXES 8

void tilewright_copy(void *target, const void *source, size_t bytes)
{
    unsigned char *to = target;
    const unsigned char *from = source;

    while (bytes--) *to++ = *from++;
}

/* The nearest integer, an even one at half way. */
static int nearest(float x)
{
    int whole = (int)x;
    const float rest = x - (float)whole;

    if (rest > 0.5f || (rest == 0.5f && whole % 2 != 0)) ++whole;
    if (rest < -0.5f || (rest == -0.5f && whole % 2 != 0)) --whole;
    return whole;
}

void tilewright_round(float *target, const float *source, size_t count)
{
    for (; count--; ++target, ++source) {
        const float x = *source;
        const int small = x > -8388608.0f && x < 8388608.0f; /* others are integers, or NaN */
        const int whole = small ? nearest(x) : 0;

        *target = whole ? (float)whole : small ? x * 0.0f : x; /* -0.0 stays negative */
    }
}

/* saturate(round_half_even(x / scale) + zero_point); NaN gives the zero point. */
void tilewright_quantize(int8_t *target, const float *source, size_t count, float scale,
                         int zero_point)
{
    const float least = (float)(-128 - zero_point), most = (float)(127 - zero_point);

    for (; count--; ++target, ++source) {
        float ratio = *source / scale;

        if (ratio != ratio) ratio = 0;
        if (ratio < least) ratio = least;
        if (ratio > most) ratio = most;
        *target = (int8_t)(nearest(ratio) + zero_point);
    }
}

void tilewright_dequantize(float *target, const int8_t *source, size_t count, float scale,
                           int zero_point)
{
    while (count--) *target++ = (float)(*source++ - zero_point) * scale;
}

/* uint8 to int8 and back: 128 less or more. */
void tilewright_shift(void *target, const void *source, size_t count)
{
    unsigned char *to = target;
    const unsigned char *from = source;

    while (count--) *to++ = (unsigned char)(*from++ ^ 0x80);
}

/* `extents` are those of the target; `steps` are bytes in the source per step of each axis. */
void tilewright_transpose(void *target, const void *source, size_t element_bytes, size_t rank,
                          const uint32_t *extents, const uint32_t *steps)
{
    uint32_t index[MOST_AXES] = {0};
    unsigned char *to = target;
    const unsigned char *from = source;
    size_t axis;

    do {
        tilewright_copy(to, from, element_bytes);
        to += element_bytes;
        for (axis = rank; axis-- > 0;) {
            if (++index[axis] < extents[axis]) {
                from += steps[axis];
                break;
            }
            from -= (size_t)steps[axis] * (extents[axis] - 1);
            index[axis] = 0;
        }
    } while (axis < rank);
}

/* e^x for x <= 0, as the 1024th power of a short series: correct to eleven digits. */
static double power(double x)
{
    double small = x / 1024, result = 1;
    int step;

    if (x < -104) return 0; /* as in binary32 */
    for (step = 8; step > 0; --step) result = 1 + result * small / step;
    for (step = 0; step < 10; ++step) result *= result;
    return result;
}

void tilewright_softmax(float *target, const float *source, size_t rows, size_t columns)
{
    size_t column;

    for (; rows--; source += columns, target += columns) {
        float top = source[0];
        double total = 0;

        for (column = 1; column < columns; ++column)
            if (source[column] > top) top = source[column];
        for (column = 0; column < columns; ++column) {
            target[column] = (float)power(source[column] - top);
            total += target[column];
        }
        for (column = 0; column < columns; ++column) target[column] /= (float)total;
    }
}

void tilewright_sigmoid(float *target, const float *source, size_t count)
{
    for (; count--; ++target, ++source) {
        const double part = power(*source < 0 ? *source : -*source);

        *target = (float)((*source < 0 ? part : 1) / (1 + part));
    }
}

/* The first of the largest elements of each row. */
void tilewright_argmax(int64_t *target, const float *source, size_t rows, size_t columns)
{
    size_t column, best;

    for (; rows--; source += columns) {
        for (best = 0, column = 1; column < columns; ++column)
            if (source[column] > source[best]) best = column;
        *target++ = (int64_t)best;
    }
}

/* Copy one entry of each part of a table to its place among `count`; a negative index counts from
   the end. Returns 0 for an index out of range. */
int tilewright_gather(void *target, const void *table, int64_t index, size_t place, size_t count,
                      size_t parts, size_t entries, size_t entry_bytes)
{
    unsigned char *to = (unsigned char *)target + place * entry_bytes;
    const unsigned char *from = table;

    if (index < 0) index += (int64_t)entries;
    if (index < 0 || index >= (int64_t)entries) return 0;
    from += (size_t)index * entry_bytes;
    for (; parts--; to += count * entry_bytes, from += entries * entry_bytes)
        tilewright_copy(to, from, entry_bytes);
    return 1;
}
