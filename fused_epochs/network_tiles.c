// Epochs of training a dense network with any optimizer, in C: products in tiles that stay in registers (one thread).
//
// A tile is ROWS rows of ACROSS vectors. For each term k of its sums it loads ACROSS vectors of a row of B, and a number
// from each of its rows of A: 11 loads for 24 vectors of multiplications and additions, where a tile has 8 rows.
//
//   Z = A Wt + b   (samples, n_out)   rows of Wt are B
//   G = D W        (samples, n_in)    computed as Gt = Wt Dt: rows of Dt are B
//   dWt = At D     (n_in, n_out)      rows of D are B; some rows at a time, which move W while they are in the cache
//
// So W is kept transposed, with b below it as its last row. Then the only factor that has to be copied into a different
// order is D, which is small. Rows are filled up to whole vectors with zeros, which no step changes. Rows begin an odd
// number of vectors apart, since rows that are a power of two apart would share few lines of the cache.
//
// Compared with OpenBLAS and JAX: python -m benchmarks.networks; its share of the peak: docs/speed.md.

#if defined(__AVX512F__)
enum { LANES = 16, ROWS = 8, ACROSS = 3 }; /* 24 + 3 of 32 registers */
#elif defined(__AVX__)
enum { LANES = 8, ROWS = 4, ACROSS = 3 }; /* 12 + 3 of 16 */
#else
enum { LANES = 4, ROWS = 4, ACROSS = 3 };
#endif

enum { CHUNK = 32 }; /* rows of W that are moved together: their gradient stays in the cache */

typedef float vector __attribute__((vector_size(4 * LANES)));

static long smaller(long a, long b) { return a < b ? a : b; }
static long vectors_of(long n) { return (n + LANES - 1) / LANES; }
static long row_of(long n) { return (vectors_of(n) | 1) * LANES; }

/* ---- C = A B: products of matrices */

typedef struct {
    const float *a, *b, *start; /* start: a row that is added to each row of C, or NULL */
    float *c;
    long a_row, a_next; /* in A from a row to the next, and from a term of a sum to the next */
    long b_row, c_row;
    long rows, vectors, terms; /* of C; in a row of C; of each sum */
} matrices;

#define IN_PLACE static inline __attribute__((always_inline)) /* with constants as arguments: loops are unrolled */

IN_PLACE void tile(const matrices *m, const int rows, const int across, long row, long column)
{
    vector sums[ROWS][ACROSS];
    const float *a = m->a + row * m->a_row, *b = m->b + column;
    const long a_row = m->a_row, a_next = m->a_next, b_row = m->b_row;
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < across; v++)
            sums[r][v] = m->start ? *(const vector *)(m->start + column + v * LANES) : (vector){0};
    for (long k = m->terms; k > 0; k--, a += a_next, b += b_row) {
        vector numbers[ACROSS];
        for (int v = 0; v < across; v++)
            numbers[v] = *(const vector *)(b + v * LANES);
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < across; v++)
                sums[r][v] += a[r * a_row] * numbers[v];
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < across; v++)
            *(vector *)(m->c + (row + r) * m->c_row + column + v * LANES) = sums[r][v];
}

/* All rows of `across` vectors: tiles of ROWS rows, then a tile of the rows that are left. */
IN_PLACE void strip(const matrices *m, const int across, long column)
{
    long row = 0;
    for (; row + ROWS <= m->rows; row += ROWS)
        tile(m, ROWS, across, row, column);
    for (; row + 4 <= m->rows; row += 4)
        tile(m, 4, across, row, column);
    if (row + 2 <= m->rows) {
        tile(m, 2, across, row, column);
        row += 2;
    }
    if (row < m->rows)
        tile(m, 1, across, row, column);
}

static void product(const matrices *m)
{
    for (long v = 0; v < m->vectors; v += ACROSS)
        switch (m->vectors - v) {
        case 1: strip(m, 1, v * LANES); break;
        case 2: strip(m, 2, v * LANES); break;
        default: strip(m, 3, v * LANES);
        }
}

/* `to` becomes the transpose of `from`, which has `rows` rows and `columns` columns. Blocks store whole rows. */
static void transpose(const float *from, long from_row, long rows, long columns, float *to, long to_row)
{
    enum { SIDE = 4 };
    for (long r = 0; r < rows; r += SIDE)
        for (long c = 0; c < columns; c += SIDE) {
            float block[SIDE][SIDE];
            if (r + SIDE <= rows && c + SIDE <= columns) {
                for (int i = 0; i < SIDE; i++)
                    for (int j = 0; j < SIDE; j++)
                        block[j][i] = from[(r + i) * from_row + c + j];
                for (int j = 0; j < SIDE; j++)
                    memcpy(to + (c + j) * to_row + r, block[j], sizeof(block[j]));
            } else {
                for (long i = r; i < smaller(rows, r + SIDE); i++)
                    for (long j = c; j < smaller(columns, c + SIDE); j++)
                        to[j * to_row + i] = from[i * from_row + j];
            }
        }
}

/* ---- the optimizer's step */

enum kind { SGD, MOMENTUM, ADAM, RMSPROP, ADAGRAD };

typedef struct {
    enum kind kind;
    double rate, momentum, l2, beta1, beta2, epsilon; /* RMSProp's beta is beta2 */
} rule;

/* w, and the means m and v, after a step along the gradient g. */
static void move(const rule *o, long count, float *restrict w, const float *restrict g, float *restrict m, float *restrict v)
{
    const float rate = o->rate, momentum = o->momentum, l2 = o->l2, epsilon = o->epsilon;
    const float beta1 = o->beta1, rest1 = 1 - o->beta1, beta2 = o->beta2, rest2 = 1 - o->beta2;
    const float tiny = 1e-20 * o->epsilon; /* smaller means would become numbers that a processor handles slowly */
    const float keep = o->kind == ADAGRAD ? 1 : beta2, add = o->kind == ADAGRAD ? 1 : rest2;
    switch (o->kind) {
    case SGD:
        for (long i = 0; i < count; i++)
            w[i] -= rate * (g[i] + l2 * w[i]);
        break;
    case MOMENTUM:
        for (long i = 0; i < count; i++) {
            v[i] = momentum * v[i] + (g[i] + l2 * w[i]);
            w[i] -= rate * v[i];
        }
        break;
    case ADAM:
        for (long i = 0; i < count; i++) {
            float whole = g[i] + l2 * w[i], mean = beta1 * m[i] + rest1 * whole;
            m[i] = fabsf(mean) > tiny ? mean : 0;
            v[i] = beta2 * v[i] + rest2 * whole * whole;
            w[i] -= rate * m[i] / (sqrtf(v[i]) + epsilon);
        }
        break;
    case RMSPROP:
    case ADAGRAD:
        for (long i = 0; i < count; i++) {
            float whole = g[i] + l2 * w[i];
            v[i] = keep * v[i] + add * whole * whole;
            w[i] -= rate * whole / (sqrtf(v[i]) + epsilon);
        }
    }
}

/* The rule of step `number`, from 1 on. Adam's means of t steps are too small by 1 - beta^t: its rate and epsilon make
   up for it. */
static rule at_step(rule o, long number)
{
    if (o.kind == ADAM) {
        double first = 1 - pow(o.beta1, number), second = sqrt(1 - pow(o.beta2, number));
        o.rate *= second / first;
        o.epsilon *= second;
    }
    return o;
}

/* ---- the network */

typedef struct {
    long n_in, n_out, row; /* row: from a row of W, Z or D to the next */
    enum activation activation, slope;
    float *w, *m, *v; /* transposed weights, the biases below them, and their means or NULL */
    float *a, *d;     /* a row of activations, and of deltas, for each sample */
} layer;

typedef struct {
    layer *layers;
    long count;
    enum cost cost;
    float *across[2]; /* transposed deltas, and the transposed result: a row for each neuron */
    float *gradient;  /* of CHUNK rows of W */
    float *x, *y;     /* the samples and targets of a batch */
} network;

static void forward(const network *net, const float *x, long samples)
{
    const float *below = x;
    long below_row = net->layers->n_in;
    for (layer *here = net->layers; here < net->layers + net->count; here++) {
        const float *biases = here->w + here->n_in * here->row;
        product(&(matrices){below, here->w, biases, here->a, below_row, 1, here->row, here->row, samples,
                            vectors_of(here->n_out), here->n_in});
        if (here->activation == SOFTMAX)
            for (long i = 0; i < samples; i++)
                softmax(here->a + i * here->row, here->n_out);
        else
            activate(here->activation, here->a, samples * here->row);
        below = here->a;
        below_row = here->row;
    }
}

/* The deltas of the last layer, for the mean cost. */
static void first_deltas(const network *net, const float *y, long samples)
{
    layer *last = net->layers + net->count - 1;
    for (long i = 0; i < samples; i++) {
        float *a = last->a + i * last->row, *d = last->d + i * last->row;
        for (long j = 0; j < last->n_out; j++) {
            float difference = a[j] - y[i * last->n_out + j];
            d[j] = (net->cost == MAE ? (difference > 0) - (difference < 0) : difference) / samples;
        }
        to_delta(last->slope, d, a, last->n_out);
    }
}

/* The deltas of the layer below `here`. */
static void backward(const network *net, const layer *here, long samples)
{
    const layer *below = here - 1;
    float *deltas = net->across[0], *sums = net->across[1];
    long row = row_of(samples);
    transpose(here->d, here->row, samples, here->n_out, deltas, row);
    product(&(matrices){here->w, deltas, NULL, sums, here->row, 1, row, row, here->n_in, vectors_of(samples), here->n_out});
    transpose(sums, row, here->n_in, samples, below->d, below->row);
    if (below->slope == SOFTMAX)
        for (long i = 0; i < samples; i++)
            to_delta(SOFTMAX, below->d + i * below->row, below->a + i * below->row, below->n_out);
    else
        to_delta(below->slope, below->d, below->a, samples * below->row);
}

/* Move the weights and biases of a layer. `inputs`: A below, with `inputs_row` numbers from a sample to the next. */
static void update(const network *net, layer *here, const rule *o, const float *inputs, long inputs_row, long samples)
{
    float *g = net->gradient;
    for (long k = 0; k <= here->n_in; k += CHUNK) {
        long rows = smaller(CHUNK, here->n_in - k), at = k * here->row;
        product(&(matrices){inputs + k, here->d, NULL, g, 1, inputs_row, here->row, here->row, rows,
                            vectors_of(here->n_out), samples});
        if (rows < CHUNK) { /* the biases are the last row */
            float *sums = g + rows++ * here->row;
            memset(sums, 0, here->row * sizeof(float));
            for (long i = 0; i < samples; i++)
                for (long j = 0; j < here->row; j++)
                    sums[j] += here->d[i * here->row + j];
        }
        move(o, rows * here->row, here->w + at, g, here->m ? here->m + at : NULL, here->v ? here->v + at : NULL);
    }
}

static void step(const network *net, const rule *o, const float *x, const float *y, long samples)
{
    forward(net, x, samples);
    first_deltas(net, y, samples);
    for (long l = net->count - 1; l >= 0; l--) {
        layer *here = net->layers + l, *below = here - 1;
        if (l > 0)
            backward(net, here, samples);
        update(net, here, o, l ? below->a : x, l ? below->row : here->n_in, samples);
    }
}

/* ---- from and to NumPy's arrays */

typedef struct {
    float *memory; /* NULL while it is only counted */
    long used;
} arena;

static float *some(arena *from, long count)
{
    float *there = from->memory ? from->memory + from->used : NULL;
    from->used += row_of(count);
    return there;
}

/* All arrays of a network for batches of this size. */
static void lay_out(network *net, arena *from, const int *sizes, long batch, int has_m, int has_v)
{
    long most = 1, widest = 1;
    for (long l = 0; l < net->count; l++) {
        layer *here = net->layers + l;
        here->n_in = sizes[l];
        here->n_out = sizes[l + 1];
        here->row = row_of(here->n_out);
        long count = (here->n_in + 1) * here->row;
        here->w = some(from, count);
        here->m = has_m ? some(from, count) : NULL;
        here->v = has_v ? some(from, count) : NULL;
        here->a = some(from, batch * here->row);
        here->d = some(from, batch * here->row);
        most = here->n_out > most ? here->n_out : most;
        widest = here->row > widest ? here->row : widest;
    }
    for (int n = 0; n < 2; n++)
        net->across[n] = some(from, most * row_of(batch));
    net->gradient = some(from, CHUNK * widest);
    net->x = some(from, batch * sizes[0]);
    net->y = some(from, batch * sizes[net->count]);
}

/* W and b of a layer, or their means, from `numbers` or back. Returns the numbers after them. */
static float *exchange(const layer *here, float *numbers, float *w, int back)
{
    long n_in = here->n_in, n_out = here->n_out;
    float *biases = w + n_in * here->row, *end = numbers + n_out * n_in;
    if (back)
        transpose(w, here->row, n_in, n_out, numbers, n_in);
    else
        transpose(numbers, n_in, n_out, n_in, w, here->row);
    memcpy(back ? end : biases, back ? biases : end, n_out * sizeof(float));
    return end + n_out;
}

static void exchange_all(const network *net, float *parameters, float *m, float *v, int back)
{
    for (layer *here = net->layers; here < net->layers + net->count; here++) {
        parameters = exchange(here, parameters, here->w, back);
        m = here->m ? exchange(here, m, here->m, back) : m;
        v = here->v ? exchange(here, v, here->v, back) : v;
    }
}

/* The rows of x and y that `order` names, one after the other. Those of the next batch are prefetched: they arrive
   from memory while this one is computed. */
static void gather(const network *net, const float *x, const float *y, const long *order, long samples, long next)
{
    long n_in = net->layers->n_in, n_out = net->layers[net->count - 1].n_out;
    for (long i = 0; i < samples; i++) {
        memcpy(net->x + i * n_in, x + order[i] * n_in, n_in * sizeof(float));
        memcpy(net->y + i * n_out, y + order[i] * n_out, n_out * sizeof(float));
    }
    for (long i = samples; i < samples + next; i++)
        for (long k = 0; k < n_in; k += 16)
            __builtin_prefetch(x + order[i] * n_in + k);
}

/* C = A B for NumPy's arrays. A may have any strides; the numbers of a row or a column of B and of a row of C must be
   adjacent. Arrays that do not begin and end with whole vectors are copied. Returns 0, or 1 if there is too
   little memory. */
int multiply(const float *a, long a_row, long a_next, const float *b, long b_row, long b_next, float *c, long c_row,
             long rows, long columns, long terms)
{
    long row = row_of(columns), whole = columns % LANES == 0;
    int own_b = b_next != 1 || b_row % LANES || !whole || (size_t)b % 64, own_c = c_row % LANES || !whole || (size_t)c % 64;
    long needed = (own_b * terms + own_c * rows) * row * sizeof(float);
    float *memory = needed ? aligned_alloc(64, needed) : NULL, *sums = own_c ? memory + own_b * terms * row : c;
    if (needed && !memory)
        return 1;
    if (own_b) {
        memset(memory, 0, terms * row * sizeof(float));
        if (b_next != 1)
            transpose(b, b_next, columns, terms, memory, row);
        for (long k = 0; k < terms && b_next == 1; k++)
            memcpy(memory + k * row, b + k * b_row, columns * sizeof(float));
    }
    product(&(matrices){a, own_b ? memory : b, NULL, sums, a_row, a_next, own_b ? row : b_row, own_c ? row : c_row, rows,
                        vectors_of(columns), terms});
    for (long r = 0; r < rows && own_c; r++)
        memcpy(c + r * c_row, sums + r * row, columns * sizeof(float));
    free(memory);
    return 0;
}

/* Steps over the n samples of x, y that `order` names, `batch` at a time. `parameters`, W and b of each layer, row after row, are changed
   in place, and so are the means m and v, unless they are NULL. `sizes` are the neurons of each layer, inputs first; the
   other arrays have a number for each of the `count` layers. `options`: rate, momentum, l2, beta1, beta2, epsilon.
   `steps`: taken before. Returns 0, or 1 if there is too little memory. */
int network_epoch(float *parameters, float *m, float *v, int count, const int *sizes, const int *activations,
                  const int *slopes, int cost, int kind, const double *options, const float *x, const float *y,
                  const long *order, long n, long batch, long steps)
{
    network net = {calloc(count, sizeof(layer)), count, cost};
    arena memory = {NULL, 0};
    int failed = net.layers == NULL;
    if (!failed) {
        lay_out(&net, &memory, sizes, batch, m != NULL, v != NULL);
        failed = (memory.memory = aligned_alloc(64, memory.used * sizeof(float))) == NULL;
    }
    if (!failed) {
        memset(memory.memory, 0, memory.used * sizeof(float));
        memory.used = 0;
        lay_out(&net, &memory, sizes, batch, m != NULL, v != NULL);
        for (long l = 0; l < count; l++) {
            net.layers[l].activation = activations[l];
            net.layers[l].slope = slopes[l];
        }
        rule o = {kind, options[0], options[1], options[2], options[3], options[4], options[5]};
        exchange_all(&net, parameters, m, v, 0);
        for (long start = 0; start < n; start += batch) {
            long samples = smaller(batch, n - start), next = smaller(batch, n - start - samples);
            rule now = at_step(o, ++steps);
            gather(&net, x, y, order + start, samples, next);
            step(&net, &now, net.x, net.y, samples);
        }
        exchange_all(&net, parameters, m, v, 1);
    }
    free(memory.memory);
    free(net.layers);
    return failed;
}
