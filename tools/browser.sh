#!/usr/bin/env bash
# The browser that the explorer's page is tried in: Debian's Chromium, where it is missing and may be installed. Run by
# `make browser`. Where there is none in the end, the tests of the page say so and are skipped.
set -uo pipefail

for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null && exit 0
done
if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
    echo "no Chromium here; install it (Debian: apt-get install chromium), or the page's tests are skipped" >&2
    exit 0
fi
echo "installing chromium"
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; }; then
    echo "chromium could not be installed; the tests of the explorer's page are skipped" >&2
fi
