#!/usr/bin/env bash
# Run every check and measurement that needs a GPU, on a bare machine with torch and without a network, in calls of at
# most nine minutes: the same command again goes on with the parts that have not ended well. It downloads nothing.
#
#   make gpu-wheels                                first, where there is a network: what such a machine lacks, 7 MB
#   benchmarks/gpu.sh [RESULTS]                    RESULTS defaults to ./gpu-results
#   WHEELS=DIR benchmarks/gpu.sh                   another folder of wheels than ./gpu-wheels
#   DEVICE=cpu SMALL=1 benchmarks/gpu.sh           a rehearsal; its results are marked, and no page is written from them
#   PARTS="facts data epoch" benchmarks/gpu.sh     only these parts, also those that have ended well; `data` with most
#   PYTHON=python3.12 SECONDS_IN_ALL=530           the Python to use; the time limit of the whole command
#   COMMIT=$(git rev-parse HEAD)                   the commit, for a machine without the git history
#
# RESULTS holds summary.tsv (parts with seconds and outcome) and gpu-results.tar.gz (tables, sweep folders without
# checkpoints, output of each part). Both are rewritten after each part, so an interruption loses only the current part.
# A call on another machine goes on if it finds the archive in RESULTS.
# `python -m benchmarks.gpu_page FOLDER` writes docs/results/gpu.md from the unpacked results.
#
# The plan: time limit and expected seconds of each part, on an H200 with 16 cores; what matters first comes first. A
# part starts only if its expected time is left. The CNN's epoch is 73 GFLOP: 30 to 60 ms with one launch per operation,
# a second on 16 cores; a tutorial's epoch takes 3 s, most of it in its loader. A process that trains on a GPU takes 2
# to 3 s to start, a sweep's command 5.
#
#   facts       70   20   versions, device, driver, clocks, output of `doctor`; first start of torch and CUDA
#   data        30    5   60,000 and 10,000 images in MNIST's format, 55 MB; in each call
#   ceilings    45   15   2 s the GPU, 2 s the CPU with all its threads, after building the matrices; in each call
#   meters      30   10   steps of the energy counter, the cost of a reading, the clock after rest
#   devices    120   80   cuda_vs_cpu: 6 runs x 7 epochs x 1.2 s on the CPU, 6 x 4 s on the GPU
#   crossover  110   70   7 + 14 runs x 2 s; 12 epochs of the largest, 1 TFLOP and 10 updates of 0.7 GB each, 1.5 s on CPU
#   tracking   150  100   6 rows of 5 rounds of two turns of 1,000 steps (0.7 s), one run each; 15 s of background work
#   epoch      120   70   9 runs of 20 epochs of 10 to 60 ms, and one that compiles for 15 to 60 s
#   loaders     70   35   7 epochs with a loader, 3 s each, and with the data on the GPU
#   resnet18    90   60   12 runs of 7 epochs of 4.5 TFLOP (0.2 to 0.5 s)
#   regions     60   35   8 runs of 12 epochs at batch sizes 100 to 60,000
#   paired     100   70   CPU and GPU in turns of 0.1 s, with the clock of each turn
#   tutorial   100   65   2 batch sizes, 6 rounds of 3.5 s of the tutorial's epoch and the ceiling, 12 s to start each
#   checks     150   75   tests/gpu: timing tests alone, then the rest in parallel if pytest-xdist is installed
#   profile     60   25   torch.profiler over an epoch, eager and captured
#
# That is two calls: up to `regions`, and the rest. A part that exceeds its limit is cut off, and its tables are
# incomplete.
set -u

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
RESULTS=$(mkdir -p "${1:-gpu-results}" && cd "${1:-gpu-results}" && pwd) || exit 2
PYTHON=${PYTHON:-python3} DEVICE=${DEVICE:-cuda} SMALL=${SMALL:-} COMMIT=${COMMIT:-} SECONDS_IN_ALL=${SECONDS_IN_ALL:-530}
ALL_PARTS="facts data ceilings meters devices crossover tracking epoch loaders resnet18 regions paired tutorial checks profile"
for name in ${PARTS:-$ALL_PARTS}; do
    [[ " $ALL_PARTS " == *" $name "* ]] || { echo "error: PARTS must be of $ALL_PARTS, got $name." >&2; exit 2; }
done
if [[ $DEVICE != cuda && -z $SMALL ]]; then
    echo "error: DEVICE must be cuda, or a rehearsal with SMALL=1, got $DEVICE." >&2
    exit 2
fi

WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
STAGING=$WORK/gpu-results
export PYTHONPATH=$REPO${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 MPLBACKEND=Agg
export XDG_CACHE_HOME=$WORK/cache RUNMANAGER_DATA=$WORK/data
WHEELS=${WHEELS-$(ls -d "$REPO/gpu-wheels" 2>/dev/null)}
if [[ -n $WHEELS ]]; then
    "$PYTHON" -m pip install -q --no-index --no-deps --no-cache-dir --target "$WORK/site" "$WHEELS"/*.whl ||
        { echo "error: the wheels in $WHEELS could not be unpacked." >&2; exit 2; }
    export PYTHONPATH=$REPO:$WORK/site${PYTHONPATH#"$REPO"}
fi
(cd "$REPO" && "$PYTHON" -m benchmarks.gpu_needs) || exit 2

# What earlier calls have done, as lines `part<TAB>seconds<TAB>ended`; each call needs the data and the ceilings.
[[ ! -f $RESULTS/gpu-results.tar.gz ]] || tar -C "$WORK" -xzf "$RESULTS/gpu-results.tar.gz" || exit 2
DONE=" $(cat "$STAGING"/summaries/*.tsv 2>/dev/null | awk -F'\t' '$3 == "ok" { printf "%s ", $1 }')"
for name in data ceilings; do DONE=${DONE// $name / }; done
if [[ -z ${PARTS:-} ]]; then
    PARTS=
    for name in $ALL_PARTS; do [[ $DONE == *" $name "* ]] || PARTS+="$name "; done
fi

mkdir -p "$STAGING"/{said,summaries,sweeps,tables} "$WORK/outputs"
SUMMARY=$STAGING/summaries/$(date +%s.%N).tsv
printf 'part\tseconds\tended\n' >"$SUMMARY"
echo "device: $DEVICE" >"$STAGING/device.txt"
if [[ -n $SMALL ]]; then
    echo "This was a rehearsal on $DEVICE with little work: its figures are not a GPU's." >"$STAGING/REHEARSAL"
fi

cd "$REPO" || exit 2

runmanager() { "$PYTHON" -c 'import sys; from runmanager.cli.main import main; sys.exit(main())' "$@"; }

# sweep NAME ARGS…: run the grid as part of the sweep NAME.
sweep() {
    local name=$1
    shift
    [[ -z $IS_OVER ]] || return 0
    "$PYTHON" -m runmanager -m "$@" "name=$name" "output_root=$WORK/outputs" resume=auto --quiet --yes
}

# tables SWEEP [ARGS of `compare`]…: write the work of each run and the given comparisons as Markdown.
tables() {
    local name=$1 index=0 comparison
    shift
    runmanager table "$WORK/outputs/$name" --work --format markdown >"$STAGING/tables/$name-work.md"
    for comparison in "$@"; do
        index=$((index + 1))
        # shellcheck disable=SC2086
        runmanager compare "$WORK/outputs/$name" $comparison --format markdown >"$STAGING/tables/$name-$index.md"
    done
}

# archive: copy the current state of the sweeps and rewrite the archive.
archive() {
    local folder name
    for folder in "$WORK"/outputs/*/; do
        [[ -f $folder/sweep.json ]] || continue
        name=$(basename "$folder")
        [[ -f $folder/report.html ]] || runmanager report "$folder" >>"$STAGING/said/report.txt" 2>&1
        rm -rf "$STAGING/sweeps/$name"
        mkdir -p "$STAGING/sweeps/$name"
        tar -C "$folder" --exclude=checkpoint.pt --exclude=best.pt --exclude='events.out.*' --exclude='.*' -cf - sweep.json \
            $(cd "$folder" && ls -d results.* epochs.csv comparison.* report.html runs 2>/dev/null) |
            tar -C "$STAGING/sweeps/$name" -xf -
    done
    tar -C "$WORK" -czf "$RESULTS/.archive" gpu-results && mv "$RESULTS/.archive" "$RESULTS/gpu-results.tar.gz"
    cp "$SUMMARY" "$RESULTS/summary.tsv"
}

# part NAME LIMIT_SECONDS EXPECTED_SECONDS: run the function `part_NAME` in a separate shell with a time limit.
part() {
    local name=$1 limit=$2 expected=$3 left=$((SECONDS_IN_ALL - SECONDS)) start=$SECONDS status ended
    [[ " $PARTS " == *" $name "* ]] || return 0
    if ((left < expected)); then
        printf '%s\t0\tnot started: out of time\n' "$name" >>"$SUMMARY"
        archive
        return 0
    fi
    [[ -z $SMALL ]] || limit=$((limit * 10)) # a rehearsal machine may be slow
    ((limit < left)) || limit=$left
    # On SIGTERM, runs finish their epoch and the driver writes the tables; IS_OVER prevents further sweeps.
    timeout --kill-after=15 "$limit" bash -c "set -uE -o pipefail; IS_OVER= STATUS=0
        trap 'IS_OVER=1' TERM; trap 'STATUS=\$?' ERR; part_$name; exit \$STATUS" >"$STAGING/said/$name.txt" 2>&1
    status=$?
    case $status in
    0) ended=ok ;;
    124 | 137) ended="cut off after $limit s" ;;
    *) ended="status $status" ;;
    esac
    printf '%s\t%d\t%s\n' "$name" "$((SECONDS - start))" "$ended" | tee -a "$SUMMARY"
    [[ $ended == ok ]] || tail -n 15 "$STAGING/said/$name.txt"
    archive
}

# A rehearsal on a CPU leaves out what only CUDA supports, and does little work.
FAST="tensorboard.enabled=false checkpoint.every=0"
if [[ $DEVICE == cuda ]]; then
    GRAPHS=false,true BENCHMARKS=false,true EAGER_PRECISIONS=fp32,tf32,bf16,fp16 PRECISIONS=fp32,tf32,bf16 PAIR=cpu,cuda CAPTURED=true
    IN_TURNS="device=cpu,cuda"
else
    GRAPHS=false,auto BENCHMARKS=false EAGER_PRECISIONS=fp32,bf16 PRECISIONS=fp32,bf16 PAIR=cpu CAPTURED=auto
    IN_TURNS="device=cpu graphs=false,auto"
fi
if [[ -n $SMALL ]]; then
    IMAGES=2000 BATCHES=500,1000 SIZES=200,1000 DEPTHS=2,4 WIDE=6 EPOCHS=7 LONG=7 COLOURED=64 COLOURED_BATCH=32 TURNS=5
    TUTORIAL="--rounds 1 --seconds 1" TRACKING=$TUTORIAL CHECKED="loading or batches_on or bytes or phases"
else
    IMAGES=60000 BATCHES=1000,10000,20000 SIZES=100,1000,10000,60000 DEPTHS=2,4,6,8,10,12 WIDE=14 EPOCHS=7 LONG=20
    COLOURED=20000 COLOURED_BATCH=500 TURNS=40 TUTORIAL="--rounds 8 --seconds 18" TRACKING="--rounds 5" CHECKED=
fi

part_facts() {
    date --iso-8601 | tee "$STAGING/day.txt"
    { [[ -n $COMMIT ]] && echo "$COMMIT" || git -C "$REPO" rev-parse HEAD || echo unknown; } | tee "$STAGING/commit.txt"
    df -h /dev/shm /tmp || true
    g++ --version || echo "g++ is not installed"
    nvidia-smi || echo "nvidia-smi is not installed"
    nvidia-smi --query-gpu=uuid,clocks.sm,clocks.max.sm,power.draw,compute_mode,mig.mode.current --format=csv || true
    "$PYTHON" -c "
from benchmarks.page import describe_machine
print(describe_machine('$DEVICE'))" | tee "$STAGING/machine.txt"
    runmanager doctor
}

part_data() {
    "$PYTHON" -c "
import pathlib, sys
from benchmarks.mnist_files import generate
generate(pathlib.Path('$RUNMANAGER_DATA'), num_training=$IMAGES, num_test=$IMAGES // 6)"
}

part_ceilings() { runmanager doctor --calibrate --threads "$("$PYTHON" -c 'import torch; print(torch.get_num_threads())')"; }

part_meters() {
    [[ $DEVICE == cuda ]] || { echo "only CUDA has meters"; return 0; }
    "$PYTHON" -m benchmarks.gpu_meters | tee "$STAGING/tables/meters.md"
}

part_checks() {
    # -v prints each test as it ends, so that the results before a cut-off are known. Warnings that only CUDA emits are
    # listed at the end instead of failing a test.
    local parallel=
    "$PYTHON" -c "import xdist" && parallel="-n 6"
    run_tests tests/gpu/test_cuda_runs.py
    # shellcheck disable=SC2086
    OMP_NUM_THREADS=4 run_tests tests/gpu/test_built_in_job.py tests/gpu/test_sharing.py $parallel
}

run_tests() {
    RUNMANAGER_TEST_DEVICE=$DEVICE "$PYTHON" -m pytest "$@" -v --tb=short --durations=10 -p no:cacheprovider \
        --timeout=120 --timeout-method=signal -W default -k "$CHECKED"
}

part_epoch() {
    local cell="dataset=mnist batch_size=1000 eval_batch_size=10000 loader=resident device=$DEVICE epochs=$LONG $FAST"
    sweep epoch $cell "graphs=$GRAPHS" "precision=$EAGER_PRECISIONS"
    sweep epoch $cell graphs=false "cudnn_benchmark=$BENCHMARKS"
    # If compilation is not possible, the tables say so and are otherwise complete.
    sweep epoch $cell "graphs=$CAPTURED" compile=true || echo "compile=true could not be measured"
    tables epoch "--axis graphs" "--axis precision" "--axis compile" "--axis cudnn_benchmark"
}

part_devices() {
    sweep devices experiment=cuda_vs_cpu dataset=mnist "batch_size=$BATCHES" "device=$PAIR" "epochs=$EPOCHS" \
        checkpoint.every=0
    tables devices "--axis device" "--axis device --crossover batch_size" "--axis num_workers"
}

part_loaders() {
    sweep loaders dataset=mnist batch_size=1000 eval_batch_size=10000 "device=$DEVICE" "loader=dataloader,resident" \
        "epochs=$EPOCHS" $FAST
    tables loaders "--axis loader"
}

part_paired() {
    sweep paired dataset=mnist batch_size=1000 eval_batch_size=10000 loader=resident $IN_TURNS epochs=2 $FAST \
        measure=paired "measure.max_seconds=$TURNS"
    tables paired "--axis device"
    "$PYTHON" -c "
import json, pathlib
for path in sorted(pathlib.Path('$WORK/outputs/paired').glob('runs/*/turns.jsonl')):
    turns = [json.loads(line) for line in path.read_text().splitlines()]
    clocks = [turn['clock_hertz'] / 1e6 for turn in turns if 'clock_hertz' in turn and not turn['warmup']]
    print(path.parent.name, len(turns), 'turns;', f'{min(clocks):.0f} to {max(clocks):.0f} MHz' if clocks else 'no clock')
" | tee "$STAGING/tables/paired-clocks.md"
}

part_tutorial() {
    "$PYTHON" -m benchmarks.tutorial_epoch --device "$DEVICE" $TUTORIAL | tee "$STAGING/tables/tutorial.md"
}

part_crossover() {
    # SGD in one kernel everywhere; otherwise the update of a captured step would not be captured.
    local cell="experiment=gpu_crossover optimizer.fused=true epochs=12 $FAST"
    sweep crossover $cell "model.depth=$DEPTHS" "device=$PAIR"
    sweep crossover $cell "model.depth=$DEPTHS,$WIDE" "device=$DEVICE" "graphs=$CAPTURED"
    sweep crossover $cell "model.depth=$WIDE" "device=$PAIR"
    tables crossover "--axis device+graphs --crossover num_parameters" "--axis graphs"
}

part_tracking() {
    "$PYTHON" -m benchmarks.tracking_overhead --device "$DEVICE" $TRACKING | tee "$STAGING/tables/tracking.md"
}

part_profile() {
    "$PYTHON" -m benchmarks.gpu_profile --device "$DEVICE" --data "$RUNMANAGER_DATA" | tee "$STAGING/tables/profile.md"
}

part_regions() {
    sweep regions dataset=mnist "batch_size=$SIZES" eval_batch_size=1000 loader=resident "device=$DEVICE" \
        "graphs=$GRAPHS" epochs=12 $FAST
    tables regions "--axis graphs --crossover batch_size"
}

part_resnet18() {
    sweep resnet18 dataset=fake "dataset.in_shape=[3,32,32]" "dataset.size=$COLOURED" "dataset.val_size=$((COLOURED / 20))" \
        model=torchvision model.architecture=resnet18 lr=0.001 "batch_size=$COLOURED_BATCH" eval_batch_size=500 loader=resident \
        "device=$DEVICE" "precision=$PRECISIONS" "channels_last=false,true" "graphs=$GRAPHS" epochs=7 $FAST
    tables resnet18 "--axis precision" "--axis graphs" "--axis channels_last"
}

export -f runmanager sweep tables run_tests
while read -r name; do export -f "${name?}"; done < <(compgen -A function part_)
export REPO WORK STAGING PYTHON DEVICE FAST GRAPHS EAGER_PRECISIONS PRECISIONS PAIR CAPTURED TUTORIAL TRACKING CHECKED \
    COMMIT BENCHMARKS IN_TURNS TURNS IMAGES BATCHES SIZES DEPTHS WIDE EPOCHS LONG COLOURED COLOURED_BATCH

part facts 70 20
part data 30 5
part ceilings 45 15
part meters 30 10
part devices 120 80
part crossover 110 70
part tracking 150 100
part epoch 120 70
part loaders 70 35
part resnet18 90 60
part regions 60 35
part paired 100 70
part tutorial 100 65
part checks 150 75
part profile 60 25
archive
cat "$SUMMARY"
echo "written to $RESULTS: summary.tsv, gpu-results.tar.gz"
! grep -q $'\t\(status\|cut off\|not started\)' "$SUMMARY"
