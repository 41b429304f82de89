package stores

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
)

// indexName is the name of the folder of the index in the folder of a store or node.
const indexName = "index"

// IndexFolder returns the folder of the index of a store: in the folder of the store if the
// user of this process owns it and may write to it, for a database in the folder of this
// node, and otherwise in the user's cache folder, under a hash of the store's path. It does
// not make the folder.
func (o *Opener) IndexFolder(at Address) (string, error) {
	if at.Database != "" {
		dir, err := o.NodeDir(at)
		return filepath.Join(dir, indexName), err
	}
	if info, err := os.Stat(at.Folder); err == nil && owned(info) && writable(at.Folder) {
		return filepath.Join(at.Folder, indexName), nil
	}
	path, err := filepath.Abs(at.Folder)
	if err != nil {
		return "", err
	}
	cache := o.Getenv("XDG_CACHE_HOME")
	if !filepath.IsAbs(cache) {
		home := o.Getenv("HOME")
		if home == "" {
			return "", fault.Usage("no folder for the index: the folder of the store cannot be written, and HOME and XDG_CACHE_HOME are not set")
		}
		cache = filepath.Join(home, ".cache")
	}
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(cache, "ledger", indexName, hex.EncodeToString(sum[:8])), nil
}
