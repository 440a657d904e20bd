# shellcheck shell=bash
# shellcheck disable=SC2154
# The servers that Leases of Kubernetes need, and a candidate of client-go. For scripts that set $self and $into.

kube_version=1.34.4

# get_kube: installs etcd, kube-apiserver and candidate in $into/kube. etcd is that of Debian, and the others are built once, which takes
# seven minutes on two processors.
get_kube() {
    local kube=$into/kube candidate=testing/interop/peers/client-go/candidate.go module name
    for name in etcd kube-apiserver candidate; do [ -x "$kube/$name" ] || break; done
    # A candidate that is older than its source is built again.
    [ ! -x "$kube/$name" ] || [ ! "$kube/$name" -nt "$candidate" ] || return 0
    { has go && has apt-get; } || { say "it needs Go, and etcd of Debian"; return 1; }
    say "building kube-apiserver $kube_version, once"
    mkdir -p "$kube/build"
    cp "$candidate" "$kube/build"
    (
        set -e
        cd "$kube/build"
        apt-get download -qq etcd-server
        dpkg -x etcd-server_*.deb etcd-server
        # Its module names the other parts of Kubernetes by path, so this one names their versions.
        module=$(go mod download -json "k8s.io/kubernetes@v$kube_version" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
        {
            printf 'module fencelock/kube\n\ngo 1.24.0\n\nrequire (\nk8s.io/kubernetes v%s\n' "$kube_version"
            sed -n "s|.*\(k8s.io/[a-z-]*\) => ./staging.*|\1 v0.${kube_version#1.}|p" "$module" | grep -v /sample- | sort -u
            printf ')\n'
        } >go.mod
        go build -mod=mod -o . k8s.io/kubernetes/cmd/kube-apiserver
        go build -mod=mod -o candidate .
        install etcd-server/usr/bin/etcd kube-apiserver candidate "$kube"
    ) && rm -rf "$kube/build"
}

# only_kube: the contract, elections beside client-go, and ten minutes of a counter with faults.
only_kube() {
    get_kube || die 'FAILED: there is no API server'
    export FENCELOCK_KUBE=$into/kube FENCELOCK_SECONDS=${FENCELOCK_SECONDS:-600}
    cargo test --locked -p fencelock-register --features kube --test kube
    cargo test --locked -p fencelock-cli --test it -- --ignored --nocapture kube::
    exit
}
