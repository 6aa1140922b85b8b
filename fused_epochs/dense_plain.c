// An epoch of training a dense network, Algorithm 1, in plain C: one thread, nested loops. The handout asks for a
// speedup over such a program. Versions (dense_plain.py):
//   c, c_float             `real` is double, or float; -O3
//   c_fast, c_float_fast   the same with -march=native -ffast-math: SIMD, sums in a different order
//
//   nncourse check dense_sgd_epoch --kernel c
//   nncourse time dense_sgd_epoch --kernel c --kernel c_float_fast

typedef struct {
    long n_in, n_out;
    enum activation activation;
    real *w;      /* a row of n_in weights for each neuron */
    real *b;      /* a bias for each neuron */
    real *a;      /* (batch, n_out) activations */
    real *delta;  /* (batch, n_out) deltas, dC/dz */
} layer;

/* A sample through all layers: z = W a + b, a = f(z). */
static void feedforward(layer *layers, long count, long sample)
{
    for (long l = 1; l < count; l++) {
        layer *here = &layers[l];
        const real *below = layers[l - 1].a + sample * here->n_in;
        real *a = here->a + sample * here->n_out;
        for (long j = 0; j < here->n_out; j++) {
            real z = here->b[j];
            for (long k = 0; k < here->n_in; k++)
                z += here->w[j * here->n_in + k] * below[k];
            a[j] = z;
        }
        activate(here->activation, a, here->n_out);
    }
}

/* The deltas of a sample, from the last layer to the first. With a cross-entropy a - y is the last delta itself. */
static void backpropagation(layer *layers, long count, enum cost cost, const float *y, long sample)
{
    layer *last = &layers[count - 1];
    real *delta = last->delta + sample * last->n_out, *a = last->a + sample * last->n_out;
    for (long j = 0; j < last->n_out; j++) {
        real difference = a[j] - y[j];
        delta[j] = cost == MAE ? (difference > 0) - (difference < 0) : difference;
    }
    if (cost != CROSS_ENTROPY)
        to_delta(last->activation, delta, a, last->n_out);
    for (long l = count - 2; l > 0; l--) {
        layer *here = &layers[l], *above = &layers[l + 1];
        const real *from = above->delta + sample * above->n_out;
        delta = here->delta + sample * here->n_out;
        for (long k = 0; k < here->n_out; k++)
            delta[k] = 0;
        for (long j = 0; j < above->n_out; j++)
            for (long k = 0; k < here->n_out; k++)
                delta[k] += above->w[j * above->n_in + k] * from[j];
        to_delta(here->activation, delta, here->a + sample * here->n_out, here->n_out);
    }
}

/* Update W and b of all layers with the gradients of all samples of the batch. */
static void update(layer *layers, long count, long samples, real step)
{
    for (long l = 1; l < count; l++) {
        layer *here = &layers[l];
        for (long j = 0; j < here->n_out; j++) {
            for (long i = 0; i < samples; i++) {
                real moved = step * here->delta[i * here->n_out + j];
                const real *below = layers[l - 1].a + i * here->n_in;
                for (long k = 0; k < here->n_in; k++)
                    here->w[j * here->n_in + k] -= moved * below[k];
                here->b[j] -= moved;
            }
        }
    }
}

static void train(layer *layers, long count, enum cost cost, const float *x, const float *y, long n, long batch, double rate)
{
    long n_in = layers[0].n_out, n_out = layers[count - 1].n_out;
    for (long start = 0; start < n; start += batch) {
        long samples = n - start < batch ? n - start : batch;
        for (long i = 0; i < samples; i++) {
            for (long k = 0; k < n_in; k++)
                layers[0].a[i * n_in + k] = x[(start + i) * n_in + k];
            feedforward(layers, count, i);
            backpropagation(layers, count, cost, y + (start + i) * n_out, i);
        }
        update(layers, count, samples, (real)(rate / samples));
    }
}

static void *numbers(long count) { return malloc((count ? count : 1) * sizeof(real)); }

/* One epoch over the n samples x, y in the order given. `parameters`, W and b of each layer, row after row, are changed
   in place. `sizes` are the neurons of each of the `count` layers, inputs first; `activations` has one for each layer
   but the inputs. Returns 0, or 1 if there is too little memory. */
int dense_epoch(float *parameters, int count, const int *sizes, const int *activations, int cost, const float *x,
                const float *y, long n, long batch, double rate)
{
    layer *layers = calloc(count, sizeof(layer));
    int failed = layers == NULL;
    float *at = parameters;
    batch = batch < n ? batch : n;
    for (long l = 0; l < count && !failed; l++) {
        layer *here = &layers[l];
        here->n_out = sizes[l];
        here->a = numbers(batch * sizes[l]);
        failed = here->a == NULL;
        if (l > 0 && !failed) {
            here->n_in = sizes[l - 1];
            here->activation = activations[l - 1];
            here->w = numbers(here->n_out * here->n_in);
            here->b = numbers(here->n_out);
            here->delta = numbers(batch * here->n_out);
            failed = here->w == NULL || here->b == NULL || here->delta == NULL;
            for (long i = 0; i < here->n_out * here->n_in && !failed; i++)
                here->w[i] = *at++;
            for (long j = 0; j < here->n_out && !failed; j++)
                here->b[j] = *at++;
        }
    }
    if (!failed) {
        train(layers, count, cost, x, y, n, batch, rate);
        at = parameters;
        for (long l = 1; l < count; l++) {
            for (long i = 0; i < layers[l].n_out * layers[l].n_in; i++)
                *at++ = (float)layers[l].w[i];
            for (long j = 0; j < layers[l].n_out; j++)
                *at++ = (float)layers[l].b[j];
        }
    }
    for (long l = 0; l < count && layers; l++) {
        free(layers[l].w);
        free(layers[l].b);
        free(layers[l].a);
        free(layers[l].delta);
    }
    free(layers);
    return failed;
}
