# What the batch scripts share. They source this file in the course's folder, with set -euo pipefail.

# If your cluster provides CUDA or g++ as modules, load them here.
# module load cuda/13.0

fail() {
    echo "${SLURM_JOB_NAME:-slurm}: $1" >&2
    exit 2
}

# Keep out the packages and the Jupyter kernels of other Python installations.
unset PYTHONPATH PYTHONHOME
VENV=$(realpath -m "${VENV:-.venv}")
export JUPYTER_PATH="$VENV/share/jupyter"
python=$VENV/bin/python
[ -x "$python" ] || fail "expected $python, found none: run make setup in $PWD, or name another environment with VENV=..."

# Use the student's kernels in this folder, even if VENV is elsewhere.
export NNCOURSE_MY_KERNELS="${NNCOURSE_MY_KERNELS:-$PWD/my_kernels}"
cores=${SLURM_CPUS_PER_TASK:-1}
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$cores}" # the other cores of a node belong to other jobs
export PYTHONUNBUFFERED=1                           # the log grows while the job runs

echo "job ${SLURM_JOB_ID:-none} on $(hostname), GPU ${CUDA_VISIBLE_DEVICES:-none}, cores $cores, $(date '+%F %T')"
