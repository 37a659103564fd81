// Simba runs a command while it holds a named mutex, on one host or across many.
package main

import (
	"os"

	"github.com/simba-lock/simba/cmd"
)

func main() { os.Exit(cmd.Main(os.Args[1:])) }
