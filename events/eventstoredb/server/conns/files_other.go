//go:build !unix

package conns

import "math"

// openFiles returns the number of files that this process may have open. These
// systems set no limit.
func openFiles() int { return math.MaxInt32 }
