// Package backendtest holds what a driver is tested with: the conformance
// [Suite] that every backend passes, and a backend in memory.
//
// [Store] is the reference of what a store does in one atomic step. It has no
// clock, no goroutine and no chance in it, so that a simulation can drive it
// through thousands of seeds a second. [Memory] makes a [lease.Backend] of it,
// with a clock and with faults that a test switches on.
package backendtest
