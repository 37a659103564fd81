// Simba runs a command while it holds a named mutex, on one host or across many.
package main

import (
	"os"

	"github.com/simba-lock/simba/cmd"
	"github.com/simba-lock/simba/internal/guard"
)

func main() {
	if guard.Reexecuted() {
		guard.Main()
	}
	os.Exit(cmd.Main(os.Args[1:]))
}
