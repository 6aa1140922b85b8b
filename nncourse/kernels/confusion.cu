// The confusion matrix, in which M[label][prediction] counts samples, and three measures computed from it.
//   atomic   confusion_matrix: a thread adds 1 for its sample
//   naive    precision, recall, f1: a thread sums the column, the row, or both, of one class
//   nncourse check confusion_matrix       against the reference
//   nncourse time confusion_matrix        against this machine's limits

// M is zero before the launch. Two threads may add to the same element at the same time: atomicAdd serialises them.
extern "C" __global__ void confusion_matrix_atomic(const int* labels, const int* predictions, int* M,
                                                   int n, int classes) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&M[labels[i] * classes + predictions[i]], 1);
}

// ---- precision, recall, F1: if the sum is 0, so is the quotient

extern "C" __global__ void precision_naive(const int* M, float* P, int classes) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= classes) return;
    int taken = 0;
    for (int i = 0; i < classes; i++) taken += M[i * classes + j];
    P[j] = taken > 0 ? (float)M[j * classes + j] / taken : 0.0f;
}

extern "C" __global__ void recall_naive(const int* M, float* R, int classes) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= classes) return;
    int there = 0;
    for (int j = 0; j < classes; j++) there += M[i * classes + j];
    R[i] = there > 0 ? (float)M[i * classes + i] / there : 0.0f;
}

extern "C" __global__ void f1_naive(const int* M, float* F, int classes) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= classes) return;
    int both = 0;
    for (int j = 0; j < classes; j++) both += M[i * classes + j] + M[j * classes + i];
    F[i] = both > 0 ? 2.0f * M[i * classes + i] / both : 0.0f;
}
