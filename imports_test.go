package main

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/simba-lock/simba"

// mayImport is who may import what: prefixes of import paths, those of the
// module without it. The standard library is not listed, but for loggers.
var mayImport = map[string][]string{
	"":                  {"cmd"},
	"cmd":               {"lease", "backend", "internal/", "github.com/spf13/", "github.com/pelletier/go-toml/", "golang.org/x/", "log/slog"},
	"lease":             {"golang.org/x/sys"},
	"backend":           {"lease", "backend/file", "backend/redis", "backend/mysql", "backend/zookeeper"},
	"backend/file":      {"lease", "golang.org/x/sys"},
	"backend/redis":     {"lease", "github.com/redis/go-redis"},
	"backend/mysql":     {"lease", "github.com/go-sql-driver/mysql"},
	"backend/zookeeper": {"lease", "github.com/go-zookeeper/zk"},
	// It speaks to the private servers that it starts for tests.
	"backend/backendtest":  {"lease", "golang.org/x/sys", "github.com/redis/go-redis", "github.com/go-sql-driver/mysql", "github.com/go-zookeeper/zk"},
	"internal/cron":        {"github.com/netresearch/go-cron"},
	"internal/guard":       {"internal/guard/early", "golang.org/x/sys"},
	"internal/guard/early": {},
	"internal/schedule":    {},
	"internal/bench":       {},
	"internal/torture":     {"backend/backendtest", "golang.org/x/sys"},
}

// TestImports holds the packages to their places: the core knows no driver, the
// drivers know neither each other nor the command line, and nothing below the
// command line logs.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Standard", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		name := local(p.ImportPath)
		allowed, known := mayImport[name]
		if !known {
			t.Errorf("%s has no place in the table", p.ImportPath)
		}
		for _, path := range p.Imports {
			if restricted(path) && !permits(allowed, local(path)) {
				t.Errorf("%s imports %s", p.ImportPath, path)
			}
		}
	}
}

func local(path string) string { return strings.TrimPrefix(strings.TrimPrefix(path, module), "/") }

// restricted is all but the standard library, and its loggers.
func restricted(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return strings.Contains(first, ".") || path == "log" || strings.HasPrefix(path, "log/")
}

func permits(allowed []string, path string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool {
		return path == a || strings.HasPrefix(path, strings.TrimSuffix(a, "/")+"/") && (strings.HasSuffix(a, "/") || strings.Contains(a, "."))
	})
}
