// Products of tiles for the kernels `tiled`; attention.cu lists all kernels. tiles.cu is compiled before this file.
// A block of 4 warps computes a tile of 16 M x 16 M elements. Each thread has M x 2 M of them in registers: its rows are 4
// apart, its columns 8 apart. So 8 threads share a row, and all rows of a warp are its own. Factors come from two tiles in
// shared memory, `a` and `b`.
#define SIDE 64  // columns of a tile in shared memory, and the most rows
#define THREADS 128

// One row. It is padded, so that threads that read from eight rows find their numbers in different banks.
typedef float Row[SIDE + 4];

// A thread's first row and first column, relative to the block's.
template <int M> __device__ int first_row() {
    return threadIdx.x / 32 * 4 * M + lane_across();
}

__device__ int first_column() {
    return lane_down();
}

__device__ float part(const float4& four, int k) {
    return k == 0 ? four.x : k == 1 ? four.y : k == 2 ? four.z : four.w;
}

// Fills 16 M rows of a tile from a matrix (t, d), from row `first` and column k0 on; zeros past its ends.
template <int M> __device__ void load(Row* tile, const float* matrix, int first, int k0, int t, int d) {
    if (by_fours(matrix, d)) {
        constexpr int EACH = 16 * M * SIDE / 4 / THREADS;
        float4 fours[EACH];  // all are on their way before the first is stored
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            int i = (threadIdx.x + e * THREADS) / (SIDE / 4), k = threadIdx.x % (SIDE / 4) * 4;
            bool inside = first + i < t && k0 + k < d;
            fours[e] = inside ? *(const float4*)(matrix + (size_t)(first + i) * d + k0 + k) : float4{};
        }
#pragma unroll
        for (int e = 0; e < EACH; e++)
            *(float4*)&tile[(threadIdx.x + e * THREADS) / (SIDE / 4)][threadIdx.x % (SIDE / 4) * 4] = fours[e];
    } else {
        int k = threadIdx.x % SIDE;
#pragma unroll 1  // otherwise this loop takes registers from more important ones
        for (int i = threadIdx.x / SIDE; i < 16 * M; i += THREADS / SIDE)
            tile[i][k] = first + i < t && k0 + k < d ? matrix[(size_t)(first + i) * d + k0 + k] : 0.0f;
    }
}

// Stores a thread's elements in its rows of the tile a, from which no other warp reads.
template <int M> __device__ void store(Row* a, const float (&z)[M][2 * M]) {
    __syncwarp();
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < 2 * M; n++) a[first_row<M>() + 4 * m][first_column() + 8 * n] = z[m][n];
}

// z = A B^T: rows of A from i0 on times rows of B from j0 on, both (t, d).
template <int M>
__device__ void rows_by_rows(float (&z)[M][2 * M], Row* a, Row* b, const float* A, int i0, const float* B, int j0, int t,
                             int d) {
    int y = first_row<M>(), x = first_column();
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < 2 * M; n++) z[m][n] = 0.0f;
    for (int k0 = 0; k0 < d; k0 += SIDE) {
        __syncthreads();
        load<M>(a, A, i0, k0, t, d);
        load<M>(b, B, j0, k0, t, d);
        __syncthreads();
        for (int k = 0; k < min(d - k0, SIDE); k += 4) {
            float4 of_b[2 * M];
#pragma unroll
            for (int n = 0; n < 2 * M; n++) of_b[n] = *(float4*)&b[x + 8 * n][k];
#pragma unroll
            for (int m = 0; m < M; m++) {
                float4 of_a = *(float4*)&a[y + 4 * m][k];
#pragma unroll
                for (int q = 0; q < 4; q++)
#pragma unroll
                    for (int n = 0; n < 2 * M; n++) z[m][n] += part(of_a, q) * part(of_b[n], q);
            }
        }
    }
}

// sums += a b. A thread takes C columns of b, 4 or 8: four from 4 x on, and four from 4 x + 32 on.
template <int C, int M> __device__ void rows_by_columns(float (&sums)[M][8], Row* a, Row* b) {
    for (int j = 0; j < 16 * M; j += 4) {
        float4 of_a[M];
#pragma unroll
        for (int m = 0; m < M; m++) of_a[m] = *(float4*)&a[first_row<M>() + 4 * m][j];
#pragma unroll
        for (int q = 0; q < 4; q++) {
            float of_b[C];
            read_fragment(of_b, &b[j + q][4 * first_column()], 32);
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int n = 0; n < C; n++) sums[m][n] += part(of_a[m], q) * of_b[n];
        }
    }
}

// The same for rows of B (t, d) from j0 on, and its columns from c0 on.
template <int M>
__device__ void rows_by_columns_of(float (&sums)[M][8], Row* a, Row* b, const float* B, int j0, int c0, int t, int d) {
    __syncthreads();
    load<M>(b, B, j0, c0, t, d);
    __syncthreads();
    if (d - c0 > 32)
        rows_by_columns<8>(sums, a, b);
    else
        rows_by_columns<4>(sums, a, b);
}

// sums += a^T b. Here a thread's M rows of the sums are adjacent.
template <int M> __device__ int first_adjacent() {
    return threadIdx.x / 32 * 4 * M + lane_across() * M;
}

template <int C, int M> __device__ void columns_by_columns(float (&sums)[M][8], Row* a, Row* b) {
    for (int i = 0; i < 16 * M; i++) {
        float of_a[M], of_b[C];
        if constexpr (M % 4 == 0)
            read_fragment(of_a, &a[i][first_adjacent<M>()], 4);
        else
            for (int m = 0; m < M; m++) of_a[m] = a[i][first_adjacent<M>() + m];
        read_fragment(of_b, &b[i][4 * first_column()], 32);
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int n = 0; n < C; n++) sums[m][n] += of_a[m] * of_b[n];
    }
}

template <int M>
__device__ void columns_by_columns_of(float (&sums)[M][8], Row* a, Row* b, const float* B, int i0, int c0, int t, int d) {
    __syncthreads();
    load<M>(b, B, i0, c0, t, d);
    __syncthreads();
    if (d - c0 > 32)
        columns_by_columns<8>(sums, a, b);
    else
        columns_by_columns<4>(sums, a, b);
}

// Writes a thread's sums to a matrix (t, d), or adds them to it: rows from i on, `apart` rows apart, columns as above.
template <int M>
__device__ void put(float (&sums)[M][8], float* matrix, int i, int apart, int c0, int t, int d, bool add = false) {
    bool fours = by_fours(matrix, d);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < 8; n++) {
            int row = i + apart * m, c = c0 + 4 * first_column() + n / 4 * 32 + n % 4;
            float* to = matrix + (size_t)row * d + c;
            if (row >= t || c >= d) continue;
            if (!fours)
                *to = add ? *to + sums[m][n] : sums[m][n];
            else if (n % 4 == 0) {
                float4 old = add ? *(float4*)to : float4{};
                *(float4*)to = make_float4(old.x + sums[m][n], old.y + sums[m][n + 1], old.z + sums[m][n + 2],
                                           old.w + sums[m][n + 3]);
            }
        }
}

// ---- Softmax of rows. The 8 threads of a row exchange numbers by shuffles.

__device__ float sum_of_row(float number) {
    for (int distance = 2; distance <= 8; distance *= 2) number += __shfl_xor_sync(0xffffffff, number, distance);
    return number;
}

__device__ float largest_of_row(float number) {
    for (int distance = 2; distance <= 8; distance *= 2)
        number = fmaxf(number, __shfl_xor_sync(0xffffffff, number, distance));
    return number;
}

// The scores of queries from i0 on for keys from j0 on; -INFINITY for keys that a query does not see.
template <int M>
__device__ void scores_of(float (&s)[M][2 * M], Row* a, Row* b, const float* Q, int i0, const float* K, int j0, int t, int d,
                          int causal) {
    rows_by_rows(s, a, b, Q, i0, K, j0, t, d);
    float scale = 1.0f / sqrtf(d);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < 2 * M; n++) {
            int i = i0 + first_row<M>() + 4 * m, j = j0 + first_column() + 8 * n;
            s[m][n] = j < t && (j <= i || !causal) ? s[m][n] * scale : -INFINITY;
        }
}

// Online softmax: turns a tile of scores into exp(s - top), with the largest score so far. `total` is the sum of the
// thread's exponentials so far; `shrink` is the factor for sums that were made with the top before.
template <int M>
__device__ void exponentials(float (&s)[M][2 * M], float (&top)[M], float (&total)[M], float (&shrink)[M]) {
#pragma unroll
    for (int m = 0; m < M; m++) {
        float largest = top[m];
#pragma unroll
        for (int n = 0; n < 2 * M; n++) largest = fmaxf(largest, s[m][n]);
        largest = largest_of_row(largest);
        shrink[m] = __expf(top[m] - largest);
        total[m] *= shrink[m];
        top[m] = largest;
#pragma unroll
        for (int n = 0; n < 2 * M; n++) {
            s[m][n] = __expf(s[m][n] - largest);
            total[m] += s[m][n];
        }
    }
}

// The head of a block, and its first query. The last queries come first, since with a mask they see the most keys.
__device__ int head_of_block(int heads) {
    return blockIdx.x % heads;
}

__device__ int query_of_block(int heads, int t) {
    return (t - 1) / SIDE * SIDE - blockIdx.x / heads * SIDE;
}
