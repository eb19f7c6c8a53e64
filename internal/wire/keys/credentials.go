// Package keys creates the credentials of a control plane: keys, certificates, and configurations with the permissions.
package keys

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nkeys"

	"example.org/lockstep/lockstep/internal/files"
)

// Credentials is a folder with the credentials of one control plane: a certificate authority and the servers'
// certificate, a key for each user, and the NATS configuration with all permissions. Not safe for concurrent use.
type Credentials struct {
	Hosts   []string `json:"hosts"`             // names and addresses of the control plane's servers
	Cluster bool     `json:"cluster,omitempty"` // each host has one server of a cluster
	At      string   `json:"at"`                // folder of the certificates on the servers
	Users   []User   `json:"users"`

	dir string
}

const credentialsFile = "fleet.json"

// Make creates the credentials in a new folder. It writes the authority, the servers' certificate, and the keys of the
// controller, the client and the viewer. The certificate is valid for hosts and the loopback names. at is the folder of
// the certificates on the servers. A folder that already has credentials is an error.
func Make(dir, at string, hosts []string, cluster bool) (*Credentials, error) {
	if _, err := os.Stat(filepath.Join(dir, credentialsFile)); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("create credentials: %s already contains those of a fleet; add agents to it, or use another folder",
			dir)
	}
	if err := os.MkdirAll(filepath.Join(dir, "agents"), 0o700); err != nil {
		return nil, fmt.Errorf("create credentials: %w", err)
	}
	c := &Credentials{Hosts: hosts, Cluster: cluster, At: at, dir: dir}
	// the authority that signs the servers' certificate
	err := makeCertificate(dir, "ca", authorityHolds, nil,
		&x509.Certificate{Subject: pkix.Name{CommonName: "Lockstep control plane"}, IsCA: true, BasicConstraintsValid: true,
			MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign})
	if err == nil {
		err = c.Renew()
	}
	for _, r := range []Role{RoleController, RoleClient, RoleViewer} {
		if err == nil {
			err = c.add(r, string(r), 1)
		}
	}
	if err == nil {
		err = c.write()
	}
	if err != nil {
		return nil, fmt.Errorf("create credentials: %w", err)
	}
	return c, nil
}

// Open reads the credentials of a folder that Make has filled.
func Open(dir string) (*Credentials, error) {
	text, err := os.ReadFile(filepath.Join(dir, credentialsFile))
	if err != nil {
		return nil, fmt.Errorf("read credentials of \"ctl fleet init\": %w", err)
	}
	c := &Credentials{dir: dir}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, fmt.Errorf("read credentials %s: %w", filepath.Join(dir, credentialsFile), err)
	}
	return c, nil
}

// AddAgents creates keys for agents with a number of slots each. A name in use, also as that of a slot, is an error.
func (c *Credentials) AddAgents(slots int, names ...string) error {
	if slots < 1 || slots > MaxSlots {
		return fmt.Errorf("add agents with %d slots: out of range; use a number from 1 to %d", slots, MaxSlots)
	}
	owner := map[string]string{}
	for _, u := range c.Users {
		for _, name := range u.names() {
			owner[name] = u.Name
		}
	}
	for i, name := range names {
		switch {
		case name == "":
			return errors.New("add agent: empty name")
		case c.find(name) >= 0:
			return fmt.Errorf("add agent %s: the user already exists; replace its key with \"ctl fleet rotate\", or remove it with \"ctl fleet remove\" to change its slots", name)
		case slices.Contains(names[:i], name):
			return fmt.Errorf("add agent %s: given twice; omit one", name)
		}
		for _, own := range (User{Name: name, Slots: slots}).names() {
			if other := owner[own]; other != "" {
				return fmt.Errorf("add agent %s: the name %s would belong to it and to a slot of %s; use another name", name, own, other)
			}
			owner[own] = name
		}
	}
	for _, name := range names {
		if err := c.add(RoleAgent, name, slots); err != nil {
			return err
		}
	}
	return c.write()
}

// Controllers returns the names of the users with the role of a controller.
func (c *Credentials) Controllers() (names []string) {
	for _, u := range c.Users {
		if u.Role == RoleController {
			names = append(names, u.Name)
		}
	}
	return names
}

// Remove removes users. The servers refuse them after they have read the new configuration.
func (c *Credentials) Remove(names ...string) error {
	for _, name := range names {
		i := c.find(name)
		if i < 0 {
			return fmt.Errorf("remove %s: no such user", name)
		}
		if err := os.Remove(filepath.Join(c.dir, c.Users[i].File())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", name, err)
		}
		c.Users = slices.Delete(c.Users, i, i+1)
	}
	return c.write()
}

// Rotate gives users new keys. The servers refuse the old keys after they have read the new configuration.
func (c *Credentials) Rotate(names ...string) error {
	for _, name := range names {
		i := c.find(name)
		if i < 0 {
			return fmt.Errorf("rotate the key of %s: no such user", name)
		}
		old := c.Users[i]
		c.Users = slices.Delete(c.Users, i, i+1)
		if err := c.add(old.Role, name, old.Slots); err != nil {
			return err
		}
	}
	return c.write()
}

// Renew creates a new certificate for the servers.
func (c *Credentials) Renew() error {
	authority, err := tls.LoadX509KeyPair(filepath.Join(c.dir, "ca.crt"), filepath.Join(c.dir, "ca.key"))
	if err != nil {
		return fmt.Errorf("read the authority (ca.crt and ca.key): %w", err)
	}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "Lockstep control plane server"},
		KeyUsage: x509.KeyUsageDigitalSignature,
		// servers of a cluster also connect to each other
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, h := range append(slices.Clone(c.Hosts), "localhost", "127.0.0.1", "::1") {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	return makeCertificate(c.dir, "server", serverHolds, &authority, template)
}

// Expires returns the end of the validity of the servers' certificate.
func (c *Credentials) Expires() (time.Time, error) {
	path := filepath.Join(c.dir, "server.crt")
	text, err := os.ReadFile(path)
	if err != nil {
		return time.Time{}, fmt.Errorf("read certificate: %w", err)
	}
	server := &x509.Certificate{}
	if block, _ := pem.Decode(text); block == nil {
		err = errors.New("not a PEM file")
	} else if server, err = x509.ParseCertificate(block.Bytes); err == nil {
		return server.NotAfter, nil
	}
	return time.Time{}, fmt.Errorf("read certificate %s: %w", path, err)
}

func (c *Credentials) find(name string) int {
	return slices.IndexFunc(c.Users, func(u User) bool { return u.Name == name })
}

// add creates a user's key and its file.
func (c *Credentials) add(role Role, name string, slots int) error {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return fmt.Errorf("create a key for %s: %w", name, err)
	}
	defer pair.Wipe()
	seed, err := pair.Seed()
	u := User{Role: role, Name: name, Made: time.Now().UTC().Truncate(time.Second)}
	if slots > 1 {
		u.Slots = slots
	}
	if err == nil {
		u.Key, err = pair.PublicKey()
	}
	if err != nil {
		return fmt.Errorf("create a key for %s: %w", name, err)
	}
	if err := files.WriteSecret(filepath.Join(c.dir, u.File()),
		fmt.Appendf(nil, "%s%s\n%s\n", heldBy, u, seed)); err != nil {
		return err
	}
	c.Users = append(c.Users, u)
	return nil
}

// write stores the list of users and the servers' configuration.
func (c *Credentials) write() error {
	slices.SortStableFunc(c.Users, func(a, b User) int {
		order := []Role{RoleController, RoleClient, RoleViewer, RoleAgent}
		if a.Role != b.Role {
			return slices.Index(order, a.Role) - slices.Index(order, b.Role)
		}
		return strings.Compare(a.Name, b.Name)
	})
	text, _ := json.MarshalIndent(c, "", "  ") // plain data always marshals
	for name, config := range configs(c) {
		if err := files.WriteSecret(filepath.Join(c.dir, name), []byte(config)); err != nil {
			return err
		}
	}
	return files.WriteSecret(filepath.Join(c.dir, credentialsFile), append(text, '\n'))
}

// Validity of certificates, and the maximum that a host's wall clock may be behind.
const (
	authorityHolds = 10 * 365 * 24 * time.Hour
	serverHolds    = 2 * 365 * 24 * time.Hour
	calendarsApart = time.Hour
)

// makeCertificate writes name.crt and name.key from a template without validity. An authority signs it; nil: itself.
func makeCertificate(dir, name string, holds time.Duration, by *tls.Certificate, template *x509.Certificate) error {
	template.NotBefore, template.NotAfter = time.Now().Add(-calendarsApart), time.Now().Add(holds)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	var der, secret []byte
	if err == nil {
		by = cmp.Or(by, &tls.Certificate{Leaf: template, PrivateKey: key})
		der, err = x509.CreateCertificate(rand.Reader, template, by.Leaf, &key.PublicKey, by.PrivateKey)
	}
	if err == nil {
		secret, err = x509.MarshalECPrivateKey(key)
	}
	if err != nil {
		return fmt.Errorf("create certificate %s: %w", name, err)
	}
	if err := files.WriteSecret(filepath.Join(dir, name+".key"),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})); err != nil {
		return err
	}
	return files.WriteSecret(filepath.Join(dir, name+".crt"),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
