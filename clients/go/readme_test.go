//go:build linux

package fencelock_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestTheExamplesOfTheREADMERun(t *testing.T) {
	text, err := os.ReadFile("README.md")
	must(t, err)
	if first := strings.Index(string(text), "```go"); strings.Count(string(text)[:first], "\n") > 2 {
		t.Fatal("the first example is not at the beginning")
	}
	here, err := os.Getwd()
	must(t, err)
	dir := directory(t)
	var functions, calls strings.Builder
	first := ""
	for i, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if i == 0 { // a whole program
			first = block[1]
			continue
		}
		fmt.Fprintf(&functions, "func example%d(ctx context.Context, client *fencelock.Client) error {\n{\n%s}\nreturn nil\n}\n", i, block[1])
		fmt.Fprintf(&calls, "if err := example%d(ctx, client); err != nil { panic(err) }\n", i)
	}
	source := `package main
import ("context"; "errors"; "log"; "time"; "github.com/fencelock/fencelock/clients/go")
var _, _, _ = errors.Is, log.Print, time.Second
func main() {
ctx := context.Background()
client, err := fencelock.Connect(ctx, "")
if err != nil { panic(err) }
defer client.Close()
` + calls.String() + "}\n" + functions.String()
	module := "module readme\ngo 1.22\nrequire github.com/fencelock/fencelock/clients/go v0.1.0\nreplace github.com/fencelock/fencelock/clients/go => " + here + "\n"
	must(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(module), 0o600))
	for says, source := range map[string]string{`alone, with the token \d+\n.*the end: <nil>\n$`: first, "": source} {
		must(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600))
		command := exec.Command("go", "run", ".")
		command.Dir = dir
		command.Env = append(os.Environ(), "FENCELOCK_URL=file:"+directory(t), "GOFLAGS=-mod=mod")
		output, err := command.CombinedOutput()
		if err != nil || !regexp.MustCompile(says).Match(output) {
			t.Fatalf("%v\n%s\n%s", err, output, source)
		}
	}
}
