//! A bucket that is ready to be asked.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::multipart::MultipartStore;
use object_store::path::Path as ObjectPath;
use object_store::{
    BackoffConfig, ClientOptions, GetOptions, ListResult, ObjectMeta, ObjectStore, RetryConfig,
};

use crate::failure::{is_not_found, is_of_body, with_context};
use crate::{Bucket, Error, Failure, Result, Service, runtime, without_credentials};

/// How long to wait for a store, and how often to ask again. The same for all but tests.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The longest that connecting may take.
    pub connect: Duration,
    /// The longest that a store may send nothing while it is waited for.
    pub silence: Duration,
    /// No request is made again after this. With `silence`, it bounds how long a dead store is asked.
    pub ask_for: Duration,
    /// How often a request is made again.
    pub retries: usize,
    /// How often an answer that broke off is continued without getting a byte further.
    pub resumes: u32,
    /// The first pause; each is twice as long as the one before.
    pub pause: Duration,
    /// How long a store that cannot answer is asked for what a checkpoint needs.
    pub outlast: Duration,
}

impl Patience {
    /// A store that does not answer is given up after 30 s to 45 s: two or three silences.
    pub const STANDARD: Self = Self {
        connect: Duration::from_secs(10),
        silence: Duration::from_secs(15),
        ask_for: Duration::from_secs(30),
        retries: 7,
        resumes: 5,
        pause: Duration::from_millis(200),
        outlast: Duration::from_secs(300),
    };

    fn retry_config(&self) -> RetryConfig {
        RetryConfig {
            backoff: BackoffConfig {
                init_backoff: self.pause,
                max_backoff: Duration::from_secs(10),
                base: 2.0,
            },
            max_retries: self.retries,
            retry_timeout: self.ask_for,
        }
    }

    fn client_options(&self) -> ClientOptions {
        // The default limit is for the whole of an answer, which may be any size.
        ClientOptions::new()
            .with_timeout_disabled()
            .with_connect_timeout(self.connect)
            .with_read_timeout(self.silence)
    }
}

/// Environment variables.
#[derive(Clone, Debug)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    fn of_process() -> Self {
        let text = |name: std::ffi::OsString| name.into_string().ok();
        Self(std::env::vars_os().filter_map(|(k, v)| Some((text(k)?, text(v)?))).collect())
    }

    /// These, and no others.
    pub fn of(variables: &[(&str, &str)]) -> Self {
        Self(variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    /// A variable that is set and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The settings that object_store knows by these names.
    fn settings<K: std::str::FromStr>(&self, prefix: &str) -> Vec<(K, &str)> {
        let of_prefix = self.0.keys().filter(|name| name.starts_with(prefix));
        let known = of_prefix
            .filter_map(|name| Some((name.to_ascii_lowercase().parse().ok()?, self.get(name)?)));
        known.collect()
    }

    fn first(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.get(name))
    }
}

/// The two faces of what asks a store.
struct Client {
    objects: Arc<dyn ObjectStore>,
    parts: Arc<dyn MultipartStore>,
}

impl Client {
    fn of<T: ObjectStore + MultipartStore>(client: T) -> Self {
        let client = Arc::new(client);
        Self { objects: Arc::<T>::clone(&client), parts: client }
    }
}

/// A bucket, and the client that asks for it.
pub struct Store {
    bucket: Bucket,
    client: Client,
    patience: Patience,
    /// Where it is, for messages.
    host: String,
    /// What was found of [`credentials`](Service::credentials).
    credentials: Vec<&'static str>,
    /// The variable because of which none are used.
    unsigned: Option<&'static str>,
}

impl Store {
    /// The store of a bucket, as the variables of this process describe it. It is made once, for its connections.
    ///
    /// # Errors
    /// The variables do not describe one.
    pub fn of_process(bucket: &Bucket) -> Result<Arc<Self>> {
        static STORES: Mutex<BTreeMap<Bucket, Arc<Store>>> = Mutex::new(BTreeMap::new());
        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = stores.get(bucket) {
            return Ok(Arc::clone(store));
        }
        let store = Self::new(bucket, &Variables::of_process(), Patience::STANDARD)?;
        let store = Arc::new(store);
        stores.insert(bucket.clone(), Arc::clone(&store));
        Ok(store)
    }

    /// The store of a bucket, as `variables` describe it.
    ///
    /// # Errors
    /// They do not.
    pub fn new(bucket: &Bucket, variables: &Variables, patience: Patience) -> Result<Self> {
        static TLS: Once = Once::new();
        // An error says that the process has a provider already, which will do.
        TLS.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
        let host = bucket.service.host(variables);
        let built = match bucket.service {
            Service::Google => google(bucket, variables, &patience),
            Service::S3 => s3(bucket, variables, &patience),
        };
        let client = built.map_err(|error| Error::Store {
            name: bucket.to_string(),
            problem: format!("this store cannot be used: {}", with_context(&error)),
            hint: format!("check the environment variables {}", bucket.service.settings()),
        })?;
        if host.starts_with("http://") && bucket.service == Service::S3 {
            bucket.service.require_http_allowed(bucket, variables)?;
        }
        let credentials = bucket.service.credentials().iter().copied();
        let credentials = credentials.filter(|name| variables.get(name).is_some()).collect();
        let mut unsigned = bucket.service.unsigned().iter().copied();
        let unsigned = unsigned.find(|name| variables.get(name).is_some_and(|v| v != "false"));
        Ok(Self { bucket: bucket.clone(), client, patience, host, credentials, unsigned })
    }

    /// The bucket.
    pub fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// How long it is waited for.
    pub fn patience(&self) -> &Patience {
        &self.patience
    }

    /// Where it is, for messages.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The variables with credentials that are set.
    pub fn credentials(&self) -> &[&'static str] {
        &self.credentials
    }

    /// The variable that says that nobody is to be named to the store.
    pub fn unsigned(&self) -> Option<&'static str> {
        self.unsigned
    }

    /// What asks it.
    pub fn client(&self) -> &dyn ObjectStore {
        &*self.client.objects
    }

    pub(crate) fn multipart(&self) -> &dyn MultipartStore {
        &*self.client.parts
    }

    /// An object, if there is one of this name.
    ///
    /// # Errors
    /// The store does not answer.
    pub fn head(&self, key: &str) -> Result<Option<ObjectMeta>> {
        let path = self.path(key)?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        let answer = self.wait(key, self.client().get_opts(&path, options))?;
        match answer {
            Ok(found) => Ok(Some(found.meta)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(self.failed(key, &error)),
        }
    }

    /// All objects below a folder.
    ///
    /// # Errors
    /// The store does not answer.
    pub fn list(&self, folder: &str) -> Result<Vec<ObjectMeta>> {
        let path = self.path(folder)?;
        self.asked_again(folder, || async {
            let (mut list, mut found) = (self.client().list(Some(&path)), Vec::new());
            while let Some(object) = poll_fn(|context| list.as_mut().poll_next(context)).await {
                found.push(object?);
            }
            Ok(found)
        })
    }

    /// The objects and folders in a folder.
    ///
    /// # Errors
    /// The store does not answer.
    pub fn list_one(&self, folder: &str) -> Result<ListResult> {
        let path = self.path(folder)?;
        self.asked_again(folder, || self.client().list_with_delimiter(Some(&path)))
    }

    /// object_store makes a request again whose answer does not begin, but not one whose list breaks off.
    fn asked_again<T, F>(&self, key: &str, ask: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let mut pause = self.patience.pause;
        for _ in 0..self.patience.resumes {
            match self.wait(key, ask())? {
                Ok(answer) => return Ok(answer),
                Err(error) if is_of_body(&error) => std::thread::sleep(pause),
                Err(error) => return Err(self.failed(key, &error)),
            }
            pause *= 2;
        }
        self.wait(key, ask())?.map_err(|error| self.failed(key, &error))
    }

    pub(crate) fn path(&self, key: &str) -> Result<ObjectPath> {
        ObjectPath::parse(key).map_err(|error| Error::Address {
            address: self.bucket.address(key),
            problem: format!("no object can have this name: {error}"),
            hint: "write one `/` between its parts".to_owned(),
        })
    }

    pub(crate) fn wait<F: Future>(&self, key: &str, future: F) -> Result<F::Output> {
        runtime::wait(future).map_err(|error| Error::Store {
            name: self.bucket.address(key),
            problem: format!("the thread for object stores cannot be started: {error}"),
            hint: "free memory, or raise the limit of threads".to_owned(),
        })
    }

    /// What an error of the client means.
    pub fn failed(&self, key: &str, error: &object_store::Error) -> Error {
        Failure::of(self, error).into_error(self.bucket.address(key))
    }
}

impl fmt::Debug for Store {
    /// Without the client, which may know credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({})", self.bucket)
    }
}

impl Service {
    /// The variables that say who asks.
    pub fn credentials(self) -> &'static [&'static str] {
        match self {
            Self::Google => &[
                "GOOGLE_APPLICATION_CREDENTIALS",
                "GOOGLE_SERVICE_ACCOUNT",
                "GOOGLE_SERVICE_ACCOUNT_PATH",
                "GOOGLE_SERVICE_ACCOUNT_KEY",
                "GOOGLE_BEARER_TOKEN",
            ],
            Self::S3 => &[
                "AWS_ACCESS_KEY_ID",
                "AWS_SECRET_ACCESS_KEY",
                "AWS_SESSION_TOKEN",
                "AWS_WEB_IDENTITY_TOKEN_FILE",
                "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            ],
        }
    }

    /// The variables that say that nobody asks; the first is for a bucket that anyone may read.
    pub fn unsigned(self) -> &'static [&'static str] {
        match self {
            Self::Google => &["GOOGLE_SKIP_SIGNATURE", "STORAGE_EMULATOR_HOST"],
            Self::S3 => &["AWS_SKIP_SIGNATURE"],
        }
    }

    /// The variables that say where the store is.
    pub fn place(self) -> &'static str {
        match self {
            Self::Google => "STORAGE_EMULATOR_HOST and GOOGLE_BASE_URL",
            Self::S3 => "AWS_ENDPOINT_URL and AWS_REGION",
        }
    }

    fn settings(self) -> &'static str {
        match self {
            Self::Google => "GOOGLE_* and STORAGE_EMULATOR_HOST",
            Self::S3 => "AWS_*",
        }
    }

    fn host(self, variables: &Variables) -> String {
        let host = match self {
            Self::Google => emulator(variables)
                .or_else(|| variables.get("GOOGLE_BASE_URL").map(str::to_owned))
                .unwrap_or_else(|| "storage.googleapis.com".to_owned()),
            Self::S3 => {
                let endpoint =
                    ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"].as_slice();
                let region = variables.first(&["AWS_REGION", "AWS_DEFAULT_REGION"]);
                let region = region.unwrap_or("us-east-1");
                match variables.first(endpoint) {
                    Some(endpoint) => endpoint.to_owned(),
                    None => format!("s3.{region}.amazonaws.com"),
                }
            }
        };
        without_credentials(host.trim_end_matches('/')).replace("...@", "")
    }

    fn require_http_allowed(self, bucket: &Bucket, variables: &Variables) -> Result<()> {
        let allowed = variables.get("AWS_ALLOW_HTTP").unwrap_or_default().to_ascii_lowercase();
        if ["true", "1", "t", "yes", "y", "on"].contains(&allowed.as_str()) {
            return Ok(());
        }
        Err(Error::Store {
            name: bucket.to_string(),
            problem: format!(
                "the store at {} would be asked without encryption",
                self.host(variables)
            ),
            hint: "set AWS_ALLOW_HTTP=true to allow it, or name an https:// address in AWS_ENDPOINT_URL"
                .to_owned(),
        })
    }
}

/// The base address that Google's own tools take from `STORAGE_EMULATOR_HOST`.
fn emulator(variables: &Variables) -> Option<String> {
    let host = variables.get("STORAGE_EMULATOR_HOST")?.trim_end_matches('/');
    Some(if host.contains("://") { host.to_owned() } else { format!("http://{host}") })
}

fn google(
    bucket: &Bucket,
    variables: &Variables,
    patience: &Patience,
) -> object_store::Result<Client> {
    let mut options = patience.client_options().with_allow_http(true);
    let mut builder = GoogleCloudStorageBuilder::new();
    for (key, value) in variables.settings("GOOGLE_") {
        match key {
            GoogleConfigKey::Client(key) => options = options.with_config(key, value),
            key => builder = builder.with_config(key, value),
        }
    }
    if let Some(base) = emulator(variables) {
        builder = builder.with_base_url(&base).with_skip_signature(true);
        if variables.get("GOOGLE_BEARER_TOKEN").is_none() {
            // Writes are signed all the same, and there is nobody to ask for a token.
            builder = builder.with_config(GoogleConfigKey::BearerToken, "emulator");
        }
    }
    let builder = builder
        .with_bucket_name(&bucket.name)
        .with_client_options(options)
        .with_retry(patience.retry_config());
    Ok(Client::of(builder.build()?))
}

fn s3(bucket: &Bucket, variables: &Variables, patience: &Patience) -> object_store::Result<Client> {
    let mut options = patience.client_options();
    let mut builder = AmazonS3Builder::new();
    for (key, value) in variables.settings("AWS_") {
        match key {
            AmazonS3ConfigKey::Client(key) => options = options.with_config(key, value),
            key => builder = builder.with_config(key, value),
        }
    }
    let builder = builder
        .with_bucket_name(&bucket.name)
        .with_client_options(options)
        .with_retry(patience.retry_config());
    Ok(Client::of(builder.build()?))
}
