//! What the commands say of Leases of Kubernetes without an API server.

use crate::backend::TestBackend;
use crate::test::Test;

#[test]
fn a_url_or_a_kubeconfig_that_is_wrong_is_refused_at_once() {
    let backend = TestBackend::files();
    for (url, text) in [
        ("kube-lease:///", "kube-lease:///NAMESPACE"),
        ("kube-lease:///jobs?kubeconfig=/nowhere", "/nowhere: No such file"),
        ("kube-lease:///jobs", "set KUBECONFIG"),
    ] {
        let test = Test::new(&backend, "run k -- true").env("FENCELOCK_URL", url);
        test.env("KUBECONFIG", "/nowhere").env("KUBERNETES_SERVICE_HOST", "").says(64, &[text]);
    }
}
