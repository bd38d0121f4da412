/* Classify the digits test images with the object that mlcc compiled. Usage: app test.bin
 *
 * test.bin: int32 count, count x 64 floats, count x int32 labels. Exits 0 if at least 97 % are right. */
#include <stdio.h>
#include <stdlib.h>

#include "mlp.h"

enum { PIXELS = 64, CLASSES = 10 };

static DLTensor matrix(float *data, int64_t *shape) {
    DLTensor t = {0};
    t.data = data;
    t.device.device_type = 1; /* kDLCPU */
    t.ndim = 2;
    t.dtype.code = 2; /* kDLFloat */
    t.dtype.bits = 32;
    t.dtype.lanes = 1;
    t.shape = shape;
    return t;
}

static int best(const float *scores) {
    int at = 0;
    for (int i = 1; i < CLASSES; i++)
        if (scores[i] > scores[at]) at = i;
    return at;
}

int main(int argc, char **argv) {
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    int32_t count = 0;
    if (!file || fread(&count, sizeof count, 1, file) != 1 || count < 1 || count > 1000000) {
        fprintf(stderr, "usage: app test.bin\n");
        return 2;
    }
    size_t n = (size_t)count;
    float *images = malloc(n * PIXELS * sizeof *images), *scores = malloc(n * CLASSES * sizeof *scores);
    int32_t *labels = malloc(n * sizeof *labels);
    if (!images || !scores || !labels || fread(images, PIXELS * sizeof *images, n, file) != n ||
        fread(labels, sizeof *labels, n, file) != n) {
        fprintf(stderr, "test.bin is truncated\n");
        return 2;
    }
    fclose(file);

    int64_t in_shape[2] = {count, PIXELS}, out_shape[2] = {count, CLASSES};
    DLTensor x = matrix(images, in_shape), y = matrix(scores, out_shape);
    int32_t code = mlp_main(&x, &y);
    if (code != 0) {
        fprintf(stderr, "mlp_main: %s\n", mlp_main_error(code));
        return 1;
    }
    size_t right = 0;
    for (size_t i = 0; i < n; i++) right += best(scores + i * CLASSES) == labels[i];
    printf("%zu of %zu test images right (%.2f %%)\n", right, n, 100.0 * (double)right / (double)n);
    free(images), free(scores), free(labels);
    return (double)right >= 0.97 * (double)n ? 0 : 1;
}
