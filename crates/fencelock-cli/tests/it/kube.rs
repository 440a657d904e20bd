//! The commands on Leases of Kubernetes, as far as they need no API server.

use crate::backend::TestBackend;
use crate::test::Test;

#[test]
fn a_url_or_a_kubeconfig_that_is_wrong_is_refused_at_once() {
    let backend = TestBackend::files();
    for (url, text) in [
        ("kube-lease:///", "kube-lease:///NAMESPACE"),
        ("kube-lease:///jobs?contxt=x", "contxt"),
        ("kube-lease://s3cret@host/jobs", "kubeconfig"),
        ("kube-lease:///jobs?kubeconfig=/nowhere", "/nowhere: No such file"),
        ("kube-lease:///jobs", "set KUBECONFIG"),
    ] {
        let test = Test::new(&backend, "run k -- true").env("FENCELOCK_URL", url);
        let output = test.env("KUBECONFIG", "/nowhere").env("KUBERNETES_SERVICE_HOST", "").output();
        let shown = output.stderr;
        assert!(output.status == 64 && shown.contains(text) && !shown.contains("s3cret"), "{}: {shown}", output.status);
    }
}
