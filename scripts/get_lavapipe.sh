#!/bin/sh
# Unpack Mesa lavapipe 25 (a software Vulkan adapter with real fp16 arithmetic) into a folder, and print the two
# environment variables that make the GPU lane use it. Debian 12 only; needs no root, changes no system setting.
#
# Usage: eval "$(scripts/get_lavapipe.sh [FOLDER])" && assay run model.tflite --lanes gpu_mldrift
#
# The packages come from the bookworm-backports suite of the mirror that this machine's apt already uses, checked
# against Debian's key, and are only unpacked, never installed: the system's own Mesa stays as it is.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
folder=${1:-$here/.cache/lavapipe}
case $folder in /*) ;; *) folder=$(pwd)/$folder ;; esac
suite=bookworm-backports

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

print_environment() {
    libraries=$(find "$folder/root/usr/lib" -maxdepth 1 -type d -name '*-linux-gnu*' | head -n 1)
    echo "export VK_ICD_FILENAMES=$folder/lvp_icd.json"
    echo "export LD_LIBRARY_PATH=$libraries\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
}

if [ -f "$folder/lvp_icd.json" ]; then
    print_environment
    exit 0
fi

command -v dpkg-deb >/dev/null || die "dpkg-deb is missing: this script is for Debian 12"
[ -r /etc/os-release ] && . /etc/os-release
[ "${VERSION_CODENAME:-}" = bookworm ] || die "this is not Debian 12 (bookworm), found ${PRETTY_NAME:-an unknown system}"

# The mirror of the `bookworm` suite, from deb822 files or one-line lists.
mirror=$(cat /etc/apt/sources.list.d/*.sources 2>/dev/null | awk '
    /^URIs:/ { uri = $2 } /^Suites:/ { if ($0 ~ /[ \t]bookworm([ \t]|$)/ && uri != "") { print uri; exit } }')
if [ -z "$mirror" ]; then
    mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | awk '
        /^deb[ \t]/ { for (i = 2; i < NF; i++) if ($(i + 1) == "bookworm") { print $i; exit } }')
fi
[ -n "$mirror" ] || die "no apt source names the bookworm suite"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keyring" ] || die "$keyring is missing: install debian-archive-keyring"

mkdir -p "$folder"
scratch=$(mktemp -d "$folder/.get.XXXXXX")
trap 'rm -rf "$scratch"' EXIT INT TERM
mkdir -p "$scratch/lists/partial" "$scratch/cache/archives/partial" "$scratch/debs" "$scratch/root"
{
    echo "deb [signed-by=$keyring] $mirror bookworm main"
    echo "deb [signed-by=$keyring] $mirror $suite main"
} >"$scratch/sources.list"

private_apt() {
    tool=$1
    shift
    "$tool" -q -o Dir::Etc::SourceList="$scratch/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$scratch/lists" -o Dir::Cache="$scratch/cache" -o APT::Sandbox::User=root "$@"
}

say "reading the package lists of $suite ..."
private_apt apt-get update >"$scratch/update.log" 2>&1 || { cat "$scratch/update.log" >&2; die "apt-get update failed"; }

# What the driver needs and the system lacks: simulate the install, take what it would fetch.
wanted=$(private_apt apt-get install --simulate --no-install-recommends -t "$suite" mesa-vulkan-drivers |
    awk '/^Inst / { version = $3; if (version ~ /^\[/) version = $4; sub(/^\(/, "", version); print $2 "=" version }')
[ -n "$wanted" ] || wanted=$(private_apt apt-cache policy mesa-vulkan-drivers |
    awk '/Candidate:/ { print "mesa-vulkan-drivers=" $2 }')
[ -n "$wanted" ] || die "$suite has no mesa-vulkan-drivers"
say "fetching:" $wanted
# shellcheck disable=SC2086
(cd "$scratch/debs" && private_apt apt-get download $wanted >&2)
for package in "$scratch"/debs/*.deb; do
    dpkg-deb -x "$package" "$scratch/root"
done

icd=$(find "$scratch/root/usr/share/vulkan/icd.d" -name 'lvp_icd*.json' | head -n 1)
[ -n "$icd" ] || die "the package holds no lavapipe driver"
rm -rf "$folder/root"
mv "$scratch/root" "$folder/root"
library=$(find "$folder/root/usr/lib" -name 'libvulkan_lvp.so' | head -n 1)
[ -n "$library" ] || die "the package holds no libvulkan_lvp.so"
icd="$folder/root/${icd#"$scratch"/root/}"
# The packaged file names the driver by a bare name, which would find the system's own: name it by its path.
sed "s|\"library_path\"[^,}]*|\"library_path\": \"$library\"|" "$icd" >"$folder/lvp_icd.json.part"
mv "$folder/lvp_icd.json.part" "$folder/lvp_icd.json"
print_environment
