// Package early starts the guard of a run while the program is still being initialised. Packages are initialised in
// the order of their import paths as far as what they import allows, so this one, and with it the life of a guard
// process, comes before most of the client libraries of the backends and the command line. Those take a third of a
// millisecond, for which a run need not wait. Import it for that effect only.
package early

import (
	"os"

	"github.com/simba-lock/simba/internal/guard"
)

func init() {
	if len(os.Args) > 1 && os.Args[1] == "run" {
		guard.Prepare()
	}
}
