# shellcheck shell=bash
# The packages of clients that carry no program, for scripts/lib/try.sh.

# A directory as a proxy of modules, which is the only one that go asks.
prepare_go() {
    local versions=$place/proxy/$module/@v
    mkdir -p "$versions" "$place/use"
    cp "$package" "$versions/v$version.zip"
    cp clients/go/go.mod "$versions/v$version.mod"
    printf '{"Version":"v%s"}' "$version" >"$versions/v$version.info"
}
go_there() {
    (cd "$place/use" && env GOPROXY="file://$place/proxy" GOSUMDB=off GOTOOLCHAIN=local GOFLAGS=-modcacherw GOMODCACHE="$place/modules" "$@")
}
install_go() {
    go_there go mod init use
    go_there go get "$module@v$version"
}
# The first example of the README runs.
check_go() {
    go_there go vet "$module/..."
    [ "$(go_there go list -m "$module")" = "$module v$version" ]
    # shellcheck disable=SC2016 # of Markdown
    sed -n '/^```go/,/^```$/{/^```/!p;/^```$/q}' "$(go_there go list -m -f '{{.Dir}}' "$module")/README.md" >"$place/use/main.go"
    go_there env -u FENCELOCK_SOCKET FENCELOCK_PROGRAM="$program" FENCELOCK_URL="file:$place/use" go run . 2>&1 | grep 'the end: <nil>'
}
remove_go() { rm -r "$place"/{proxy,use,modules}; }
