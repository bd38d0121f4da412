/* Continue a text with the object that mlcc compiled. Usage: writer TEXT COUNT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "writer.h"

enum { LAYERS = 2, HEADS = 4, DEPTH = 16, CHARACTERS = 96 };

static int code_of(char c) { return c == '\n' ? 0 : c - 31; }
static char character(int code) { return code == 0 ? '\n' : (char)(code + 31); }

static DLTensor tensor(void *data, int32_t ndim, int64_t *shape, uint8_t kind, uint8_t bits) {
    DLTensor t = {0};
    t.data = data;
    t.device.device_type = 1; /* kDLCPU */
    t.ndim = ndim;
    t.dtype.code = kind;
    t.dtype.bits = bits;
    t.dtype.lanes = 1;
    t.shape = shape;
    return t;
}

/* Keys and values of the characters so far: (LAYERS, HEADS, length, DEPTH), twice, for the old ones and the new ones */
typedef struct {
    float *keys, *values;
} cache;

static cache cache_of(int64_t length) {
    size_t bytes = (size_t)(LAYERS * HEADS * DEPTH * length + 1) * sizeof(float);
    cache made = {malloc(bytes), malloc(bytes)};
    if (!made.keys || !made.values) exit(2);
    return made;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: writer TEXT COUNT\n");
        return 2;
    }
    const char *text = argv[1];
    int64_t prompt = (int64_t)strlen(text), count = atoll(argv[2]);
    int64_t most = prompt + count, length = 0;
    int64_t *codes = malloc((size_t)(prompt + 1) * sizeof *codes);
    float *scores = malloc((size_t)(prompt + 1) * CHARACTERS * sizeof *scores);
    cache old = cache_of(most), kept = cache_of(most);
    if (!codes || !scores || prompt < 1) return 2;
    for (int64_t i = 0; i < prompt; i++) codes[i] = code_of(text[i]);
    fputs(text, stdout);

    int64_t given = prompt; /* characters of this call: the whole text, then one at a time */
    for (int64_t step = 0; step < count; step++) {
        int64_t codes_shape[1] = {given}, scores_shape[2] = {given, CHARACTERS};
        int64_t old_shape[4] = {LAYERS, HEADS, length, DEPTH}, new_shape[4] = {LAYERS, HEADS, length + given, DEPTH};
        DLTensor in[3] = {tensor(codes, 1, codes_shape, 0, 64), tensor(old.keys, 4, old_shape, 2, 32),
                          tensor(old.values, 4, old_shape, 2, 32)};
        DLTensor out[3] = {tensor(scores, 2, scores_shape, 2, 32), tensor(kept.keys, 4, new_shape, 2, 32),
                           tensor(kept.values, 4, new_shape, 2, 32)};
        int32_t code = writer_main(&in[0], &in[1], &in[2], &out[0], &out[1], &out[2]);
        if (code != 0) {
            fprintf(stderr, "writer_main: %s\n", writer_main_error(code));
            return 1;
        }
        const float *last = scores + (given - 1) * CHARACTERS;
        int best = 0;
        for (int i = 1; i < CHARACTERS; i++)
            if (last[i] > last[best]) best = i;
        putchar(character(best));
        length += given, given = 1, codes[0] = best;
        cache swapped = old;
        old = kept, kept = swapped;
    }
    putchar('\n');
    free(codes), free(scores), free(old.keys), free(old.values), free(kept.keys), free(kept.values);
    return 0;
}
