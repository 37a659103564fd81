// Package early forks the guard process of a run while the program is still being initialised, as the start of a
// process is what a short run waits for longest. Packages are initialised in the order of their import paths as far
// as what they import allows. This one imports next to nothing, so it comes long before the client libraries
// of the backends and the command line, which together take half a millisecond.
package early
