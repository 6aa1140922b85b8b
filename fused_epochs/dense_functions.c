// Activations and their slopes in C, with numbers of type `real`, for dense_plain.c and network_tiles.c.
//
// ALPHA is the slope of the leaky ReLU below 0.

enum activation { IDENTITY, STEP, SIGMOID, TANH, RELU, LEAKY_RELU, SOFTPLUS, SOFTMAX };
enum cost { MSE, MAE, CROSS_ENTROPY };

/* exp() of a float is infinite above 88, and -ffast-math assumes that nothing is infinite. */
static real limited(real z) { return z < -87 ? -87 : z > 87 ? 87 : z; }

static void softmax(real *z, long n)
{
    real top = z[0], sum = 0;
    for (long j = 1; j < n; j++)
        top = z[j] > top ? z[j] : top;
    for (long j = 0; j < n; j++) {
        z[j] = exp(limited(z[j] - top));
        sum += z[j];
    }
    for (long j = 0; j < n; j++)
        z[j] /= sum;
}

/* a = f(z), in place. */
static void activate(enum activation f, real *z, long n)
{
    switch (f) {
    case IDENTITY: break;
    case STEP: for (long j = 0; j < n; j++) z[j] = z[j] > 0; break;
    case SIGMOID: for (long j = 0; j < n; j++) z[j] = 1 / (1 + exp(-limited(z[j]))); break;
    case TANH: for (long j = 0; j < n; j++) z[j] = tanh(z[j]); break;
    case RELU: for (long j = 0; j < n; j++) z[j] = z[j] < 0 ? 0 : z[j]; break; /* NaN stays NaN */
    case LEAKY_RELU: for (long j = 0; j < n; j++) z[j] = z[j] > 0 ? z[j] : (real)ALPHA * z[j]; break;
    case SOFTPLUS: for (long j = 0; j < n; j++) z[j] = (z[j] > 0 ? z[j] : 0) + log1p(exp(-limited(fabs(z[j])))); break;
    case SOFTMAX: softmax(z, n); break;
    }
}

/* delta = dC/da * f'(z), in place; the slope is computed from a = f(z). */
static void to_delta(enum activation f, real *delta, const real *a, long n)
{
    real mean = 0;
    switch (f) {
    case IDENTITY: break;
    case STEP: for (long j = 0; j < n; j++) delta[j] = 0; break;
    case SIGMOID: for (long j = 0; j < n; j++) delta[j] *= a[j] * (1 - a[j]); break;
    case TANH: for (long j = 0; j < n; j++) delta[j] *= 1 - a[j] * a[j]; break;
    case RELU: for (long j = 0; j < n; j++) delta[j] *= a[j] > 0; break;
    case LEAKY_RELU: for (long j = 0; j < n; j++) delta[j] *= a[j] > 0 ? 1 : (real)ALPHA; break;
    case SOFTPLUS: for (long j = 0; j < n; j++) delta[j] *= 1 - exp(-limited(a[j])); break;
    case SOFTMAX:
        for (long j = 0; j < n; j++) mean += delta[j] * a[j];
        for (long j = 0; j < n; j++) delta[j] = (delta[j] - mean) * a[j];
        break;
    }
}
