# shellcheck shell=bash
# Uploads of snapshots, measured against coldsnap: `bench_ebs`, for `scripts/bench`.

# Set by `scripts/bench`.
: "${work:?}" "${bake:?}" "${runs:?}"

readonly coldsnap_version=0.12.0 disk_mib=2048
double=$(target_folder)/release/aws-double
limit=$(target_folder)/release/examples/put_limit
coldsnap=$work/coldsnap/bin/coldsnap

install_coldsnap() {
    [[ -x $coldsnap ]] || cargo install coldsnap --version "$coldsnap_version" --locked --root "$work/coldsnap"
}

# 40 % data that cannot be compressed, in runs of 4 MiB as filesystems have them.
make_ebs_disk() {
    local at
    [[ -e $work/ebs.raw ]] && return
    truncate --size "${disk_mib}M" "$work/ebs.new"
    for ((at = 0; at < disk_mib; at += 10)); do
        dd if=/dev/urandom of="$work/ebs.new" bs=1M count=4 seek="$at" conv=notrunc status=none
    done
    mv "$work/ebs.new" "$work/ebs.raw"
}

# Changes 1 % of the disk: 8 MiB here and there in its data.
change_ebs_disk() {
    local at
    for ((at = 0; at < disk_mib; at += disk_mib / 20)); do
        dd if=/dev/urandom of="$work/ebs.raw" bs=1M count=1 seek=$((at / 10 * 10)) conv=notrunc status=none
    done
}

start_double() {
    "$double" --listen 127.0.0.1:0 --put-delay "$1" >"$work/double.log" 2>&1 &
    double_process=$!
    local tries
    for ((tries = 0; tries < 100; tries++)); do
        endpoint=$(sed -n 's/^listening at \(http[^;]*\);.*/\1/p' "$work/double.log")
        [[ -z $endpoint ]] || return 0
        sleep 0.1
    done
    die "the double did not start"
}

stop_double() {
    kill "$double_process"
    wait "$double_process" 2>/dev/null || true
}

# `measure COMMAND…`: wall time in ms, CPU time in ms, and largest memory in KiB. What it prints is in $work/made.
measure() {
    local measured
    env --unset=AWS_PROFILE AWS_ENDPOINT_URL="$endpoint" AWS_REGION=us-east-1 AWS_EC2_METADATA_DISABLED=true \
        AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE AWS_SECRET_ACCESS_KEY=secret \
        /usr/bin/time --quiet -o "$work/measured" -f '%e %U %S %M' "$@" >"$work/made" 2>"$work/log" </dev/null || {
        tail -n 20 "$work/made" "$work/log" >&2
        die "failed: $*"
    }
    read -r -a measured <"$work/measured"
    awk -v wall="${measured[0]}" -v user="${measured[1]}" -v kernel="${measured[2]}" -v memory="${measured[3]}" \
        'BEGIN { printf "%d %d %d\n", wall * 1000, (user + kernel) * 1000, memory }'
}

upload_by_bake() {
    measure "$bake" --state-dir "$work/state" --set cache_dir="$work/cache" --set "plugins.cloud.ec2.pace=100ms" \
        snapshot upload --env ec2_apt_loop "$work/ebs.raw" "$@"
}

upload_by_coldsnap() {
    measure "$coldsnap" --endpoint "$endpoint" --region us-east-1 upload --no-progress --omit-zero-blocks --wait "$work/ebs.raw"
}

# The Nth figure of each of the measurements given.
column() {
    local n=$1
    shift
    printf '%s\n' "$@" | awk -v n="$n" '{ print $n }'
}

# `ebs_line TITLE MEASUREMENT…`
ebs_line() {
    local title=$1 wall cpu memory
    shift
    mapfile -t wall < <(column 1 "$@")
    mapfile -t cpu < <(column 2 "$@")
    mapfile -t memory < <(column 3 "$@")
    awk -v title="$title" -v wall="$(median "${wall[@]}")" -v cpu="$(median "${cpu[@]}")" -v memory="$(median "${memory[@]}")" \
        'BEGIN { printf "  %-22s %7.2f s wall  %7.2f s CPU  %6.1f MiB\n", title, wall / 1000, cpu / 1000, memory / 1024 }'
}

# `ebs_ratio N TITLE FIRST-ARRAY SECOND-ARRAY`: of the medians of a figure.
ebs_ratio() {
    local n=$1 title=$2 one other
    local -n first=$3 second=$4
    mapfile -t one < <(column "$n" "${first[@]}")
    mapfile -t other < <(column "$n" "${second[@]}")
    awk -v title="$title" -v one="$(median "${one[@]}")" -v other="$(median "${other[@]}")" \
        'BEGIN { printf "  %-50s %6.2f\n", title, one / other }'
}

compare_uploads() {
    local delay=$1 n first
    local cold=() whole=() again=() bare=()
    for ((n = 0; n <= runs; n++)); do
        start_double "$delay"
        cold+=("$(upload_by_coldsnap)")
        whole+=("$(upload_by_bake)")
        first=$(awk '{ print $4 }' "$work/made")
        bare+=("$(measure "$limit" "$endpoint" "$work/ebs.raw" 2)")
        change_ebs_disk
        again+=("$(upload_by_bake --parent "$first")")
        stop_double
        say "$delay ms, run $n of $runs: coldsnap ${cold[-1]}, bake ${whole[-1]}, again ${again[-1]}, limit ${bare[-1]}"
    done
    # The first is to warm up.
    cold=("${cold[@]:1}") whole=("${whole[@]:1}") again=("${again[@]:1}") bare=("${bare[@]:1}")
    echo "answers after $delay ms:"
    ebs_line coldsnap "${cold[@]}"
    ebs_line "bake" "${whole[@]}"
    ebs_line "bake, after 1 % changed" "${again[@]}"
    ebs_line "hashing and HTTP alone" "${bare[@]}"
    ebs_ratio 1 "wall: coldsnap / bake" cold whole
    ebs_ratio 2 "CPU: bake / coldsnap" whole cold
    ebs_ratio 3 "memory: bake / coldsnap" whole cold
    ebs_ratio 1 "wall: coldsnap / bake after 1 % changed" cold again
    ebs_ratio 1 "wall: the limit / bake" bare whole
}

bench_ebs() {
    mkdir -p "$work"
    part "Debian packages" install_missing time
    part "building" cargo build --release --package bake-cli --package aws-double --bins --examples
    part "coldsnap $coldsnap_version" install_coldsnap
    part "a disk of 2 GiB" make_ebs_disk
    part "answers at once" compare_uploads 0
    part "answers after 50 ms" compare_uploads 50
    say_parts
}
