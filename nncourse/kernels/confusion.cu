// confusion_matrix: M[label][prediction] counts samples. M is zero before the launch.

// One thread a sample. Two threads may want to add to the same cell at once: atomicAdd lets them do so one after the other.
extern "C" __global__ void confusion_matrix_atomic(const int* labels, const int* predictions, int* M,
                                                   int n, int classes) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&M[labels[i] * classes + predictions[i]], 1);
}
