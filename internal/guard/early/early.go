// Package early is where a guard process begins its life, and where a run starts
// one: both while the program is still being initialised. Packages are initialised in the order of their import paths
// as far as what they import allows, so this one comes before the client
// libraries of the backends and the command line. Those take a third of a
// millisecond, which a guard need not spend and a run need not wait for. Import it
// for that effect only.
package early

import (
	"os"

	"github.com/simba-lock/simba/internal/guard"
)

func init() {
	if guard.Reexecuted() {
		guard.Main()
	}
	if len(os.Args) > 1 && os.Args[1] == "run" {
		guard.Prepare()
	}
}
